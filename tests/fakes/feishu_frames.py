"""The binary frames of Feishu's long connection: enough protobuf to read and write them.

Fields: 1 SeqID, 2 LogID, 3 service, 4 method (varints, all required), 5 headers (messages of
1 key, 2 value), 6 payload encoding, 7 payload type, 8 payload, 9 LogIDNew.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

CONTROL = 0
DATA = 1

_VARINT = 0
_BYTES = 2


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame; what the platform leaves empty is not kept."""

    method: int
    headers: dict[str, str] = field(default_factory=dict)
    payload: bytes = b""
    sequence: int = 0
    log: int = 0
    service: int = 1

    def with_payload(self, payload: bytes, **headers: str) -> "Frame":
        """The same frame with another payload, and with some headers set."""
        return replace(self, payload=payload, headers={**self.headers, **headers})


def encode(frame: Frame) -> bytes:
    """The bytes of *frame*."""
    numbers = (frame.sequence, frame.log, frame.service, frame.method)
    out = bytearray()
    for number, value in enumerate(numbers, start=1):
        out += _tag(number, _VARINT) + _varint(value)
    for key, words in frame.headers.items():
        header = _field(1, key.encode()) + _field(2, words.encode())
        out += _field(5, bytes(header))
    if frame.payload:
        out += _field(8, frame.payload)
    return bytes(out)


def decode(data: bytes) -> Frame:
    """The frame in *data*; raises ValueError if it is none."""
    numbers: dict[int, int] = {}
    headers: dict[str, str] = {}
    payload = b""
    for number, value in _fields(data):
        if isinstance(value, int):
            numbers[number] = value
        elif number == 5:
            pair = dict(_fields(value))
            headers[_words(pair.get(1))] = _words(pair.get(2))
        elif number == 8:
            payload = value
    if not {1, 2, 3, 4} <= numbers.keys():
        raise ValueError("a required field is missing")
    return Frame(numbers[4], headers, payload, numbers[1], numbers[2], numbers[3])


def _words(value: int | bytes | None) -> str:
    return value.decode() if isinstance(value, bytes) else ""


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    at = 0
    while at < len(data):
        tag, at = _read_varint(data, at)
        value, at = _read_varint(data, at)
        if tag & 7 == _VARINT:
            yield tag >> 3, value
        elif tag & 7 == _BYTES:
            yield tag >> 3, data[at : at + value]
            at += value
        else:
            raise ValueError("a wire type that no frame has")


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(data):
            raise ValueError("cut short")
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if not byte & 0x80:
            return value, at


def _field(number: int, value: bytes) -> bytearray:
    return bytearray(_tag(number, _BYTES) + _varint(len(value)) + value)


def _tag(number: int, wire_type: int) -> bytes:
    return _varint(number << 3 | wire_type)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
