"""A client's frame as a value, and a request's params as those of its method."""

import json
from typing import Any, TypeVar

import msgspec
from msgspec import Raw, Struct

from server.errors import BadRequest, ServerError
from server.ws.objects import Sparse
from server.ws.wire import REQUESTS, Ping, Pong

T = TypeVar("T")

MAX_ID_CHARS = 128


class NotJson(ServerError):
    """The frame is not JSON; nothing sensible can follow it."""


class _Frame(Struct):
    """Any frame, loosely: what is wrong with it is told by name later."""

    type: Any = None
    id: Any = None
    method: Any = None
    params: Raw = Raw(b"{}")
    t: Any = None


class Call(Struct, frozen=True):
    """A request whose params are not read yet."""

    id: str
    method: str
    params: Raw


_frames = msgspec.json.Decoder(_Frame)
_params = {name: msgspec.json.Decoder(params) for name, (params, _) in REQUESTS.items()}


def decode_frame(text: str) -> Call | Ping | Pong | None:
    """The frame in *text*; None for a kind that this server does not know.

    Raises:
        NotJson: It is not JSON.
        BadRequest: It is no frame, or a request without a usable id or method.
    """
    try:
        frame = _decoded(text)
    except msgspec.ValidationError:
        raise BadRequest("a frame is a JSON object") from None
    match frame.type:
        case "req":
            return _call(frame)
        case "ping" if _is_time(frame.t):
            return Ping(frame.t)
        case "pong" if _is_time(frame.t):
            return Pong(frame.t)
        case _:
            return None


def decode_params(call: Call) -> Sparse:
    """The params of *call*.

    Raises:
        BadRequest: They are not those of the method; `path` names the field.
    """
    decoder = _params[call.method]
    try:
        try:
            return decoder.decode(call.params)
        except msgspec.ValidationError:
            raise
        except msgspec.DecodeError:
            return _mended(bytes(call.params).decode(), decoder)
    except msgspec.ValidationError as error:
        raise _bad_request(str(error)) from None


def id_of(text: str) -> str:
    """The id in a frame that cannot be used; empty where there is none."""
    try:
        value = _frames.decode(text).id
    except (msgspec.MsgspecError, RecursionError):
        return ""
    return value if isinstance(value, str) and len(value) <= MAX_ID_CHARS else ""


def _decoded(text: str) -> _Frame:
    try:
        return _frames.decode(text)
    except msgspec.ValidationError:
        raise
    except (msgspec.DecodeError, RecursionError):
        return _mended(text, _frames)


def _call(frame: _Frame) -> Call:
    if not (isinstance(frame.id, str) and 0 < len(frame.id) <= MAX_ID_CHARS):
        raise BadRequest(f"must be a text of 1 to {MAX_ID_CHARS} characters", "id")
    if not isinstance(frame.method, str):
        raise BadRequest("must be a text", "method")
    return Call(frame.id, frame.method, frame.params)


def _is_time(value: object) -> bool:
    return isinstance(value, int | float)


def _mended(text: str, decoder: msgspec.json.Decoder[T]) -> T:
    """What *decoder* makes of *text* after lone surrogates were replaced in it.

    Browsers escape half a surrogate pair rather than refuse it, and a person may well have cut an
    emoji in two; the fast decoder takes that for an error.
    """
    try:
        mended = json.dumps(json.loads(text), ensure_ascii=False).encode("utf-8", "replace")
        return decoder.decode(mended)
    except msgspec.ValidationError:
        raise
    except (msgspec.DecodeError, ValueError, RecursionError):
        raise NotJson("not JSON") from None


def _bad_request(text: str) -> BadRequest:
    """A decoder's complaint with the path of the field that it is about."""
    reason, _, place = text.partition(" - at `$")
    path = place.rstrip("`").lstrip(".")
    if not path and "`" in reason and "field" in reason:
        path = reason.split("`")[1]
    return BadRequest(reason, path or None)
