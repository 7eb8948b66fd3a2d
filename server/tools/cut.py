"""Cutting long text in the middle, so that what is left still tells whether the whole changed."""

import codecs
import hashlib
import json
from collections.abc import Callable

_LEAST_ROOM_BYTES = 64
"""Below this nothing useful of a field would be left."""


def size_bytes(text: str) -> int:
    """The length of *text* in UTF-8; lone surrogates count as three."""
    return len(text) if text.isascii() else len(text.encode(errors="surrogatepass"))


class Excerpt:
    """The head and the tail of a byte stream and the hash of all of it, in bounded memory.

    What it shows depends on the bytes alone, never on how they were chunked.
    """

    def __init__(self, cap_bytes: int) -> None:
        self._head = bytearray()
        self._tail = bytearray()
        self._head_cap = cap_bytes - cap_bytes // 2
        self._tail_cap = cap_bytes // 2
        self._hash = hashlib.sha256()
        self.total_bytes = 0

    def add(self, chunk: bytes) -> None:
        """Take the next bytes of the stream."""
        self._hash.update(chunk)
        self.total_bytes += len(chunk)
        space = self._head_cap - len(self._head)
        self._head += chunk[:space]
        self._tail += chunk[space:]
        if len(self._tail) > 2 * self._tail_cap:  # not at each chunk, or it were quadratic
            self._trim()

    @property
    def truncated(self) -> bool:
        """Whether something in the middle is left out."""
        return self.total_bytes > self._head_cap + self._tail_cap

    def text(self) -> str:
        """What is kept; where something is left out, a line names the hash of the whole."""
        self._trim()
        if not self.truncated:
            return (self._head + self._tail).decode(errors="replace")
        missing = self.total_bytes - len(self._head) - len(self._tail)
        head = codecs.getincrementaldecoder("utf-8")("replace").decode(bytes(self._head))
        tail = _without_half_character(bytes(self._tail)).decode(errors="replace")
        return f"{head}\n{_mark(missing, self._hash.hexdigest())}\n{tail}"

    def last_line(self) -> str:
        """The end of the stream so far, for someone who watches."""
        recent = bytes((self._tail or self._head)[-400:]).decode(errors="replace")
        return recent.rstrip().rpartition("\n")[2]

    def _trim(self) -> None:
        excess = len(self._tail) - self._tail_cap
        if excess > 0:
            del self._tail[:excess]


def cut_text(text: str, cap_bytes: int) -> str:
    """*text* with its middle left out when it is longer than *cap_bytes*, the mark not counted."""
    excerpt = Excerpt(cap_bytes)
    excerpt.add(text.encode(errors="replace"))
    return excerpt.text()


def cut_result(content: str, cap_bytes: int) -> str:
    """A tool's result made to fit; a JSON object stays one, its longest string cut.

    An object without such a string is wrapped as the text of another object.
    """
    fields = _object(content)
    if fields is None:
        return _fit(lambda room: cut_text(content, room), cap_bytes) or ""
    return _cut_longest(fields, cap_bytes) or _wrap(content, cap_bytes)


def _cut_longest(fields: dict[str, object], cap_bytes: int) -> str | None:
    texts = {name: value for name, value in fields.items() if isinstance(value, str)}
    if not texts:
        return None
    name = max(texts, key=lambda key: len(texts[key]))
    told = {"truncated": True} if "truncated" in fields else {}
    return _fit(
        lambda room: _dump({**fields, name: cut_text(texts[name], room), **told}), cap_bytes
    )


def _wrap(content: str, cap_bytes: int) -> str:
    def render(room: int) -> str:
        return _dump({"truncated": True, "text": cut_text(content, room)})

    return _fit(render, cap_bytes) or _dump({"truncated": True})


def _fit(render: Callable[[int], str], cap_bytes: int) -> str | None:
    """Render with less and less room until it fits; escapes make the needed room unforeseeable."""
    room = cap_bytes
    while room >= _LEAST_ROOM_BYTES:
        text = render(room)
        excess = size_bytes(text) - cap_bytes
        if excess <= 0:
            return text
        room -= max(excess, room // 8) if excess < room else room // 2
    return None


def _object(content: str) -> dict[str, object] | None:
    if not content.lstrip().startswith("{"):
        return None
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _dump(fields: dict[str, object]) -> str:
    return json.dumps(fields, ensure_ascii=False)


def _without_half_character(tail: bytes) -> bytes:
    """*tail* without the rest of a character that the cut went through."""
    start = 0
    while start < min(3, len(tail)) and tail[start] & 0xC0 == 0x80:
        start += 1
    return tail[start:]


def _mark(missing_bytes: int, digest: str) -> str:
    return f"…[cut: {max(1, round(missing_bytes / 1024))} KB, sha256 {digest[:16]}]…"
