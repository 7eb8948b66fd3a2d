"""The `send_message` tool: a text into another chat or session."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Final, Protocol

from msgspec import Meta

from guard import ToolContract, drop_fields
from server.errors import ToolError
from server.tools.arguments import Arguments, decode, schema_of
from server.tools.base import Found, Kind, ToolContext, ToolResult, ToolSpec, json_result

SEND_MESSAGE: Final = "send_message"

TEXT_MAX: Final = 20_000
"""Characters: a long report; a platform gets it in several messages."""

SEND_SECONDS: Final = 30.0
"""A message is only stored here; this ends the wait for a store that hangs."""


class SendArguments(Arguments, frozen=True):
    """What `send_message` takes."""

    to: Annotated[
        str,
        Meta(
            max_length=500,
            description=(
                "A session's id, or a chat as platform:app_id:chat_id, for a topic of it "
                "platform:app_id:chat_id:thread_id."
            ),
        ),
    ]
    text: Annotated[str, Meta(max_length=TEXT_MAX, description="What to say there, as Markdown.")]


@dataclass(frozen=True, slots=True)
class Sent:
    """A message that is stored and will be told."""

    delivery_id: str


class Post(Protocol):
    """Takes messages to other chats and sessions."""

    async def send(self, context: ToolContext, to: str, text: str) -> Sent:
        """Store a message to be told at *to*; the same call again is the same message.

        Raises:
            ToolError: It may not be sent there.
        """

    async def find(self, context: ToolContext) -> Sent | None:
        """What the call stored."""

    def remembers(self, since: datetime) -> bool:
        """Whether all that was sent since then is still known."""


class SendMessage:
    """Tells something elsewhere, in the name of the session's owner."""

    spec = ToolSpec(
        name=SEND_MESSAGE,
        description=(
            "Send a text into another chat or session. It is shown there when what runs there "
            "has ended; an answer to it does not come back here. To answer where you are, just "
            "answer."
        ),
        parameters=schema_of(SendArguments),
        kind="send",
        parallel=False,
        timeout_seconds=SEND_SECONDS,
        output_cap_bytes=8_000,
        # Each sending has an id of its own; what was sent where stands in the arguments.
        contract=ToolContract(result=drop_fields("delivery_id")),
    )

    def __init__(self, post: Post) -> None:
        self._post = post

    def kind_of(self, arguments: Mapping[str, object]) -> Kind:
        return "send"

    async def run(self, arguments: Mapping[str, object], context: ToolContext) -> ToolResult:
        wanted = _decoded(arguments)
        return _told(wanted, await self._post.send(context, wanted.to, wanted.text))

    async def mark(self, arguments: Mapping[str, object], context: ToolContext) -> str:
        _decoded(arguments)
        return datetime.now(UTC).isoformat()

    async def lookup(
        self, arguments: Mapping[str, object], mark: str, context: ToolContext
    ) -> Found:
        sent = await self._post.find(context)
        if sent is not None:
            return _told(_decoded(arguments), sent)
        return "not_done" if self._post.remembers(datetime.fromisoformat(mark)) else "unknown"


def _decoded(arguments: Mapping[str, object]) -> SendArguments:
    wanted = decode(arguments, SendArguments)
    if not wanted.text.strip():
        raise ToolError("bad_arguments", "text is empty")
    return wanted


def _told(wanted: SendArguments, sent: Sent) -> ToolResult:
    return json_result(
        {
            "delivered": False,
            "queued": True,
            "to": wanted.to,
            "delivery_id": sent.delivery_id,
            "message": "stored; it is told there as soon as that chat or session is free",
        }
    )
