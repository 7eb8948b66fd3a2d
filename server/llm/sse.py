"""Bytes of an event stream in, the payloads of its `data:` lines out."""

from server.errors import LLMBadResponse

MAX_LINE_BYTES = 32 * 1024 * 1024
"""A longer line is no chunk of a chat model; without a bound it would eat the memory."""

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class DataLines:
    """Splits a stream into data lines, whatever the pieces it arrives in.

    Lines end with `\\n` alone: U+2028 and its like may stand unescaped inside JSON, so a
    general line splitter would cut a chunk in two. Blank lines are not needed between events.
    """

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._held_bytes = 0

    def feed(self, received: bytes) -> list[bytes]:
        """The payloads of the lines that *received* completes.

        Raises:
            LLMBadResponse: A line is longer than `MAX_LINE_BYTES`.
        """
        if b"\n" not in received:
            self._hold(received)
            return []
        lines = received.split(b"\n")
        if self._pieces:
            self._pieces.append(lines[0])
            lines[0] = b"".join(self._pieces)
            self._pieces.clear()
            self._held_bytes = 0
        rest = lines.pop()
        if rest:
            self._hold(rest)
        return _payloads(lines)

    def finish(self) -> list[bytes]:
        """The payload of a last line that came without its line end."""
        line = b"".join(self._pieces)
        self._pieces.clear()
        return _payloads([line])

    def _hold(self, piece: bytes) -> None:
        self._pieces.append(piece)
        self._held_bytes += len(piece)
        if self._held_bytes > MAX_LINE_BYTES:
            raise LLMBadResponse("the gateway sent a line without an end")


def _payloads(lines: list[bytes]) -> list[bytes]:
    found = []
    for line in lines:
        if line.startswith(b"data:"):
            payload = line[5:].strip()
        elif line[:1] in (b"", b":", b"\r"):
            continue
        else:
            payload = _bare_payload(line)
        if payload:
            found.append(payload)
    return found


def _bare_payload(line: bytes) -> bytes:
    """The payload of an unusual line: after a byte order mark, or JSON without its field name."""
    line = line.removeprefix(_BYTE_ORDER_MARK)
    if line.startswith(b"data:"):
        return line[5:].strip()
    return line.strip() if line.startswith(b"{") else b""
