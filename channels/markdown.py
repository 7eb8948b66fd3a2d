"""Fitting a model's Markdown into what a platform takes: size, tables, plain text."""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

LEAST_LIMIT_BYTES: Final = 64
"""Below it the lines that open and close a block would leave no room for what stands in it."""

_UNLIMITED = 1 << 30
_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_FENCE = re.compile(r"[ \t]*(?P<mark>`{3,}|~{3,})(?P<language>.*)")
_GUARD = "\u200b"
"""Put before a piece of a long line that would open or close a block by chance."""

_REGIONAL = range(0x1F1E6, 0x1F200)
_SKIN_TONES = range(0x1F3FB, 0x1F400)
_CLUSTER_CHARACTERS = 16
"""Longer than a family emoji."""
_BREAKS = re.compile(r"[\s,.;:!?,。、;:!?](?=[^\s,.;:!?,。、;:!?])")


def size(text: str) -> int:
    """Bytes of *text* in UTF-8."""
    return len(text.encode("utf-8", "surrogatepass"))


def _whole(text: str) -> str:
    """*text* with one kind of line end; halves of a character are joined or replaced."""
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


# --- code blocks ---


@dataclass(frozen=True, slots=True)
class _Fence:
    """An open code block."""

    mark: str
    language: str

    @property
    def opening(self) -> str:
        return f"{self.mark}{self.language}\n"

    @property
    def closing(self) -> str:
        return f"{self.mark}\n"

    def is_closed_by(self, line: str) -> bool:
        """Whether *line* is the end of the block."""
        mark = line.strip()
        return len(mark) >= len(self.mark) and set(mark) == {self.mark[0]}


def _opened(line: str, limit: int) -> _Fence | None:
    """The code block that *line* opens, at whatever depth of a list.

    A mark too long to be repeated is cut, a language too long is left out.
    """
    match = _FENCE.fullmatch(line.rstrip("\n"))
    if match is None or (match["mark"][0] == "`" and "`" in match["language"]):
        return None
    language = match["language"].strip()
    return _Fence(match["mark"][: limit // 8], language if size(language) <= limit // 8 else "")


def _after(fence: _Fence | None, line: str, limit: int) -> _Fence | None:
    """The code block that is open after *line*."""
    if fence is None:
        return _opened(line, limit)
    return None if fence.is_closed_by(line) else fence


# --- splitting ---


def split(text: str, limit_bytes: int) -> list[str]:
    """Cut *text* into parts of at most *limit_bytes* in UTF-8; none for a blank text.

    Cuts between paragraphs where it can, else between lines, else between characters. A code block
    that is cut is closed and opened again with its language; one left open at the end is closed.
    """
    return list(parts(text, limit_bytes))


def parts(text: str, limit_bytes: int) -> Iterator[str]:
    """The parts of `split`, one by one."""
    cut = _parts(text, limit_bytes, keep_paragraphs=True)
    return (part for part in cut if part.strip())


def truncate(text: str, limit_bytes: int, note: str) -> str:
    """*text* if it fits, else as much of its beginning as does with *note* after it."""
    text = _whole(text)
    if size(text) <= limit_bytes:
        return text
    beginning = next(_parts(text, limit_bytes - size(note), keep_paragraphs=False), "")
    return beginning.rstrip("\n") + note if note.startswith("\n") else beginning + note


def _parts(text: str, limit: int, *, keep_paragraphs: bool) -> Iterator[str]:
    if limit < LEAST_LIMIT_BYTES:
        raise ValueError(f"a limit of {limit} bytes is below {LEAST_LIMIT_BYTES}")
    part = _Part(limit, keep_paragraphs)
    for match in _LINE.finditer(_whole(text)):
        line = part.normal(match[0])
        while part.lines and not part.fits(line):
            yield part.flush()
        if part.is_ended_by(line):
            part.restart(None)
        elif part.fits(line):
            part.add(line)
        else:
            yield from part.add_long(line)
    yield part.rest()


class _Part:
    """The part that is being filled."""

    def __init__(self, limit: int, keep_paragraphs: bool) -> None:
        self.limit = limit
        self.head = ""
        """Opens the code block again that the part before had to close."""
        self.lines: list[str] = []
        self.fence: _Fence | None = None
        """The code block that is open after the last line."""
        self._keep_paragraphs = keep_paragraphs
        self._bytes = 0
        """Of head and lines."""
        self._cut: tuple[int, int] = (0, 0)
        """The last good place to cut: lines and bytes before it."""
        self._opened_at = -1
        """The line that opened the block."""

    def normal(self, line: str) -> str:
        """*line*, or the plain form of one that opens or closes a block at great length."""
        after = _after(self.fence, line, self.limit)
        if after == self.fence:
            return line
        is_long = size(line) > self.limit // 4
        if after is not None:
            is_repeatable = not line.lstrip().startswith(after.mark + after.mark[0])
            return line if is_repeatable and not is_long else after.opening
        return self.fence.closing if is_long and self.fence else line

    def fits(self, line: str) -> bool:
        """Whether *line* can be added and the part still be closed."""
        after = _after(self.fence, line, self.limit)
        return self._bytes + size(line) + _closing_bytes(after, line) <= self.limit

    def is_ended_by(self, line: str) -> bool:
        """Whether *line* ends the block that the part before has closed already."""
        return bool(self.head and not self.lines and self.fence and self.fence.is_closed_by(line))

    def add(self, line: str) -> None:
        """Take *line*, which fits."""
        after = _after(self.fence, line, self.limit)
        if self.fence is None and after is not None:
            self._opened_at = len(self.lines)
            self._cut = (len(self.lines), self._bytes)
        self.lines.append(line)
        self._bytes += size(line)
        self.fence = after
        if after is None and not line.strip():
            self._cut = (len(self.lines), self._bytes)

    def add_long(self, line: str) -> Iterator[str]:
        """Take *line*, which fits into no part; gives the parts it fills."""
        room = self.limit - size(self.head) - size(_GUARD) - _closing_bytes(self.fence, "x")
        while size(line) > room:
            at = _cut_at(line, room)
            yield _closed(self.head + self._guarded(line[:at]), self.fence)
            line = line[at:]
        self.add(self._guarded(line))

    def flush(self) -> str:
        """Give what is full, keep what shall stand in the next part; maybe nothing to give."""
        count = self._cut_count()
        taken, kept = self.lines[:count], self.lines[count:] if count else []
        fence = None if kept else self.fence
        text = self._text(taken, fence) if taken else ""
        self.restart(fence)
        for line in kept:
            self.add(line)
        return text

    def rest(self) -> str:
        """Give what is left at the end of the text."""
        if not self.lines:
            return ""
        if self._ends_with_opening():
            self.lines.pop()
            self.fence = None
        return self._text(self.lines, self.fence)

    def _cut_count(self) -> int:
        if self._ends_with_opening():
            return len(self.lines) - 1
        count, before = self._cut
        is_good = self._keep_paragraphs and count and before >= self.limit // 2
        return count if is_good else len(self.lines)

    def _ends_with_opening(self) -> bool:
        """A block was opened and nothing stands in it: an empty box, were it closed here."""
        return self.fence is not None and self._opened_at == len(self.lines) - 1

    def restart(self, fence: _Fence | None) -> None:
        """Begin the next part, in *fence* if one is open."""
        self.head = fence.opening if fence else ""
        self.lines = []
        self.fence = fence
        self._bytes = size(self.head)
        self._cut = (0, 0)
        self._opened_at = -1

    def _text(self, lines: Sequence[str], fence: _Fence | None) -> str:
        text = self.head + "".join(lines)
        return _closed(text, fence)

    def _guarded(self, piece: str) -> str:
        is_plain = _after(self.fence, piece, self.limit) == self.fence
        return piece if is_plain else _GUARD + piece


def _closed(text: str, fence: _Fence | None) -> str:
    if fence is None:
        return text
    return text + ("" if text.endswith("\n") else "\n") + fence.closing


def _closing_bytes(fence: _Fence | None, line: str) -> int:
    """What closing a block after *line* takes."""
    return 0 if fence is None else size(fence.closing) + (not line.endswith("\n"))


def _cut_at(line: str, room: int) -> int:
    """Characters of *line* that fit into *room* bytes: to a break if one is near, never inside
    what a reader sees as one character."""
    end = len(line[:room].encode()[:room].decode("utf-8", "ignore"))
    near = end - end // 4
    breaks = [match.end() for match in _BREAKS.finditer(line, near, end + 1)]
    if breaks and breaks[-1] <= end:
        return breaks[-1]
    for at in range(end, max(end - _CLUSTER_CHARACTERS, 0), -1):
        if not _is_joined(line[at - 1], line[at]):
            return at
    return end


def _is_joined(before: str, after: str) -> bool:
    """Whether two characters are seen as one."""
    return (
        before == "\u200d"
        or after == "\u200d"
        or ord(after) in _SKIN_TONES
        or (ord(before) in _REGIONAL and ord(after) in _REGIONAL)
        or unicodedata.category(after).startswith("M")
    )


# --- tables ---


def limit_tables(text: str, most: int) -> str:
    """Leave the first *most* tables as they are and put each other one into a code block."""
    lines = _LINE.findall(_whole(text))
    shown: list[str] = []
    fence: _Fence | None = None
    tables = at = 0
    while at < len(lines):
        end = at if fence else _table_end(lines, at)
        if end > at:
            tables += 1
            table = "".join(lines[at:end])
            shown.append(table if tables <= most else _closed("```\n" + table, _Fence("```", "")))
            at = end
            continue
        fence = _after(fence, lines[at], _UNLIMITED)
        shown.append(lines[at])
        at += 1
    return "".join(shown)


def _table_end(lines: Sequence[str], at: int) -> int:
    """Where the table ends that begins at *at*; *at* itself where none does."""
    if at + 1 >= len(lines) or "|" not in lines[at] or not _is_delimiter_row(lines[at + 1]):
        return at
    end = at + 2
    while end < len(lines) and "|" in lines[end] and not _opened(lines[end], _UNLIMITED):
        end += 1
    return end


def _is_delimiter_row(line: str) -> bool:
    """The second line of a table, as `|---|:-:|`."""
    cells = line.strip().removeprefix("|").removesuffix("|").split("|")
    return "|" in line and all(re.fullmatch(r":?-+:?", cell.strip()) for cell in cells)


# --- plain text ---

_CODE = re.compile(r"(`{1,4})([^`\n]+)\1")
_LEADING = re.compile(r"^[ \t]{0,3}(?:#{1,6}[ \t]+|(?:>[ \t]?)+)")
_LINKED = re.compile(r"!?\[([^\[\]\n]{0,500})\]\(([^()\s]{1,2000})(?:[ \t]+\"[^\"\n]{0,200}\")?\)")
_STRONG = re.compile(r"(\*\*|~~)(?=\S)(.{1,1000}?)(?<=\S)\1")
_EMPHASIS = re.compile(r"(?<![\w*])\*(?=[^\s*])(.{1,300}?)(?<=[^\s*])\*(?![\w*])")


def plain(text: str) -> str:
    """*text* without the marks of Markdown, for where none is rendered; code stays as it is."""
    shown: list[str] = []
    fence: _Fence | None = None
    for line in _LINE.findall(_whole(text)):
        after = _after(fence, line, _UNLIMITED)
        if after == fence and not (fence is None and _is_delimiter_row(line)):
            shown.append(line if fence else _plain_line(line))
        fence = after
    return "".join(shown)


def _plain_line(line: str) -> str:
    line = _LEADING.sub("", line)
    shown: list[str] = []
    at = 0
    for code in _CODE.finditer(line):
        shown += [_plain_words(line[at : code.start()]), code[2]]
        at = code.end()
    return "".join([*shown, _plain_words(line[at:])])


def _plain_words(text: str) -> str:
    text = _LINKED.sub(_named_address, text)
    return _EMPHASIS.sub(r"\1", _STRONG.sub(r"\2", text))


def _named_address(link: re.Match[str]) -> str:
    name, address = link[1].strip(), link[2]
    return address if name in ("", address) else f"{name} ({address})"
