"""What the ways in and out raise on purpose.

ChannelError
└─ DeliveryError          `retryable`, `retry_after_seconds`
"""


class ChannelError(Exception):
    """Base of all that a channel raises on purpose."""


class DeliveryError(ChannelError):
    """A surface could not be told something."""

    def __init__(
        self, message: str, *, retryable: bool, retry_after_seconds: float | None = None
    ) -> None:
        super().__init__(message)
        self.retryable = retryable
        self.retry_after_seconds = retry_after_seconds
