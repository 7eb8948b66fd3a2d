"""The `hand_off` tool: the model says that a person has to take over."""

from collections.abc import Mapping
from typing import Annotated

from msgspec import Meta

from guard.rules.hand_off import HAND_OFF_TOOL
from server.errors import ToolError
from server.message import clean_text
from server.tools.arguments import Arguments, decode, parse_arguments, schema_of
from server.tools.base import Kind, ToolContext, ToolResult, ToolSpec, json_result


class HandOffArguments(Arguments, frozen=True):
    """What `hand_off` takes."""

    reason: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=2_000,
            description=(
                "For the person: what is to be done, what you found out, and what you lack."
            ),
        ),
    ]


class HandOff:
    """Ends the run with what was reached so far; what the call says is told to the person.

    The tool itself changes nothing: the guard ends the run after the round of a successful call.
    """

    spec = ToolSpec(
        name=HAND_OFF_TOOL,
        description=(
            "Hand the task over to a person, which ends your work on it. Only for what you cannot "
            "finish with the tools you have: a right, a decision or a fact that you cannot get. "
            "Something that the user can tell you is asked for, not handed over."
        ),
        parameters=schema_of(HandOffArguments),
        kind="read",
        parallel=False,
        timeout_seconds=10,
        output_cap_bytes=8_000,
    )

    def kind_of(self, arguments: Mapping[str, object]) -> Kind:
        return "read"

    async def run(self, arguments: Mapping[str, object], context: ToolContext) -> ToolResult:
        decode(arguments, HandOffArguments)
        return json_result({"handed_off": True})


def reason_of(arguments_json: str) -> str | None:
    """What a call said for the person; None for one that said nothing that can be read."""
    try:
        wanted = decode(parse_arguments(arguments_json), HandOffArguments)
    except ToolError:
        return None
    return clean_text(wanted.reason).strip() or None
