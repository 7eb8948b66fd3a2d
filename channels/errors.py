"""What the ways in and out raise on purpose.

ChannelError
├─ Undecodable            a payload that makes no sense; it is acknowledged all the same
├─ BadSignature           a webhook call that is not the platform's
├─ LineError              a long connection cannot be had; `reason` is safe to show
├─ DeliveryError          `retryable`, `retry_after_seconds`, `trouble`
├─ FetchError             a file cannot be had; `user_text` says why
├─ InboxUnavailable       the application could not keep a message
└─ InboxRefused           it will not; `user_text` says why
"""

from typing import Literal

DeliveryTrouble = Literal["gone", "refused", "forbidden", "unreachable", "not_configured", "fault"]
"""Why a surface was not told, for people: the chat is `gone`; the text was `refused`; the bot lacks
a right or its secret is wrong (`forbidden`); the platform gave no answer, or asked to wait, to the
last (`unreachable`); there is no such bot any more (`not_configured`); a `fault` is ours."""


class ChannelError(Exception):
    """Base of all that a channel raises on purpose."""


class Undecodable(ChannelError):
    """A payload is not of any form that the platform is known to send."""


class BadSignature(ChannelError):
    """A webhook call does not prove that it is the platform's, or was seen before."""


class LineError(ChannelError):
    """A long connection cannot be had; `reason` goes into health and log, so no secret is in it."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class DeliveryError(ChannelError):
    """A surface could not be told; `trouble` says why for people, the text for the log."""

    def __init__(
        self,
        message: str,
        *,
        retryable: bool,
        retry_after_seconds: float | None = None,
        trouble: DeliveryTrouble | None = None,
    ) -> None:
        super().__init__(message)
        self.retryable = retryable
        self.retry_after_seconds = retry_after_seconds
        self.trouble: DeliveryTrouble = trouble or ("unreachable" if retryable else "refused")


class FetchError(ChannelError):
    """A file of a message cannot be had."""

    def __init__(self, message: str, user_text: str) -> None:
        super().__init__(message)
        self.user_text = user_text


class InboxUnavailable(ChannelError):
    """The application could not keep what it was given; nothing of it is lost if it comes again."""


class InboxRefused(ChannelError):
    """The application will not take it; `user_text` is safe to show."""

    def __init__(self, user_text: str) -> None:
        super().__init__("refused")
        self.user_text = user_text
