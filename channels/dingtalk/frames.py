"""What passes over the stream: the topics that are heard, and how a frame is acknowledged."""

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

TOPIC_MESSAGE = "/v1.0/im/bot/messages/get"
TOPIC_CLICK = "/v1.0/card/instances/callback"
TOPICS = (TOPIC_MESSAGE, TOPIC_CLICK)
"""What is not subscribed to is not pushed."""

OK = 200
FAILED = 500


@dataclass(frozen=True, slots=True)
class Answer:
    """The acknowledgement of a pushed frame."""

    code: int = OK
    response: object = "OK"
    """What a click shall change on its card, or a word that nobody reads."""


Handle = Callable[[str, str], Coroutine[Any, Any, Answer]]
"""Takes topic and data of a frame on the application's loop; never raises."""
