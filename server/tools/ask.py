"""The `ask_user` tool: the model asks for something that only a person knows."""

from collections.abc import Mapping
from typing import Annotated

from msgspec import Meta

from server.errors import ToolError
from server.tools.arguments import Arguments, decode, schema_of
from server.tools.base import Kind, ToolContext, ToolResult, ToolSpec

ASK_USER = "ask_user"


class AskArguments(Arguments, frozen=True):
    """What `ask_user` takes."""

    question: Annotated[str, Meta(min_length=1, max_length=4_000)]
    options: Annotated[
        tuple[Annotated[str, Meta(min_length=1, max_length=200)], ...],
        Meta(max_length=8, description="Answers to choose from; any other stays possible."),
    ] = ()


class AskUser:
    """Ends the run with a question; the answer is the call's result, and the run goes on."""

    spec = ToolSpec(
        name=ASK_USER,
        description=(
            "Ask the user for something you need and cannot find out yourself, in one short "
            'question. The run pauses until the answer comes. Result: {"answer": …}.'
        ),
        parameters=schema_of(AskArguments),
        kind="read",
        parallel=False,
        timeout_seconds=10,
        output_cap_bytes=32_000,
        consent="is_question",
    )

    def kind_of(self, arguments: Mapping[str, object]) -> Kind:
        return "read"

    async def run(self, arguments: Mapping[str, object], context: ToolContext) -> ToolResult:
        """Reached only by a call that cannot be put to anybody."""
        decode(arguments, AskArguments)
        raise ToolError("nobody_to_ask", "nobody can be asked here; decide yourself, or say so")
