"""What DingTalk's refusals mean to us: one table per face of the platform.

The OpenAPI (`api.dingtalk.com`) answers with an HTTP status and a `code` in words, the old face
(`oapi.dingtalk.com`, the session webhooks too) always with HTTP 200 and a number `errcode`.
"""

from collections.abc import Mapping
from enum import StrEnum

from channels.errors import ChannelError, DeliveryTrouble


class Kind(StrEnum):
    """What can be done about a refusal."""

    TOKEN = "token"
    """Get a new token, repeat once."""
    THROTTLED = "throttled"
    """Wait, repeat; nothing was done."""
    PERMISSION = "permission"
    """An operator has to grant a scope in the console."""
    TEMPLATE = "template"
    """The card template is missing, unpublished or lacks a variable."""
    EXPIRED = "expired"
    """The session webhook is of no more use."""
    GONE = "gone"
    """The person or the chat cannot be reached by this bot; final."""
    CONTENT = "content"
    """This text is not taken, another may be."""
    BROKEN = "broken"
    """The platform's own trouble, or none of its answers came; it may have been done."""
    BAD = "bad"
    """Anything else: the same request will be refused again."""


class Refused(ChannelError):
    """DingTalk did not do what it was asked to; the text of the refusal is not kept."""

    def __init__(self, kind: Kind, code: str, retry_after_seconds: float | None = None) -> None:
        super().__init__(f"DingTalk refused: {kind} ({code})")
        self.kind = kind
        self.code = code
        """As the platform gave it, or `http_…`; safe to log."""
        self.retry_after_seconds = retry_after_seconds

    @property
    def trouble(self) -> DeliveryTrouble | None:
        """Why something was not told; None where that follows from whether a repeat helps."""
        return _TROUBLES.get(self.kind)

    @property
    def is_passing(self) -> bool:
        """The same request may be taken later."""
        return self.kind in (Kind.THROTTLED, Kind.BROKEN)


_TROUBLES: Mapping[Kind, DeliveryTrouble] = {
    Kind.GONE: "gone",
    Kind.PERMISSION: "forbidden",
    Kind.TOKEN: "forbidden",
    Kind.TEMPLATE: "forbidden",
}

_BY_PREFIX: Mapping[str, Kind] = {
    "InvalidAuthentication": Kind.TOKEN,
    "Forbidden.AccessDenied.Qps": Kind.THROTTLED,
    "Forbidden.AccessDenied.AccessTokenPermissionDenied": Kind.PERMISSION,
    "Forbidden.AccessDenied.IpNotInWhiteList": Kind.PERMISSION,
    "Throttling": Kind.THROTTLED,
    "param.template": Kind.TEMPLATE,
    "unknownError": Kind.TEMPLATE,
    "staffId.notExisted": Kind.GONE,
}
"""OpenAPI codes by how they begin. `unknownError` comes with HTTP 500 when the streamed key is no
variable of the template."""

_BY_STATUS: Mapping[int, Kind] = {
    401: Kind.TOKEN,
    403: Kind.PERMISSION,
    404: Kind.BAD,
    408: Kind.BROKEN,
    413: Kind.CONTENT,
    429: Kind.THROTTLED,
}

_BY_NUMBER: Mapping[int, Kind] = {
    300001: Kind.EXPIRED,
    130101: Kind.THROTTLED,
    90002: Kind.THROTTLED,
    90018: Kind.THROTTLED,
    88: Kind.PERMISSION,
    60011: Kind.PERMISSION,
    40001: Kind.TOKEN,
    40014: Kind.TOKEN,
    42001: Kind.TOKEN,
    460101: Kind.CONTENT,
    -1: Kind.BROKEN,
}
"""The old face: 300001 no such session, 130101 too many in a minute, 900xx over the quota of the
interface, 88 and 60011 no right, 40001, 40014 and 42001 token, 460101 too long, -1 busy."""


def classify_api(status: int, code: str, retry_after_seconds: float | None = None) -> Refused:
    """What an OpenAPI answer with an HTTP status of 400 or above means."""
    for prefix, kind in _BY_PREFIX.items():
        if code.lower().startswith(prefix.lower()):
            return Refused(kind, code, retry_after_seconds)
    kind = _BY_STATUS.get(status, Kind.BROKEN if status >= 500 else Kind.BAD)
    return Refused(kind, code or f"http_{status}", retry_after_seconds)


def classify_oapi(errcode: int) -> Refused | None:
    """What an `errcode` means; None is success."""
    if errcode == 0:
        return None
    return Refused(_BY_NUMBER.get(errcode, Kind.BAD), str(errcode))
