"""The registry: whatever the model sends, there is a result that it can act upon."""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping

import pytest

from server.errors import ToolError
from server.tools.arguments import Arguments, decode, schema_of
from server.tools.base import Kind, Registry, ToolContext, ToolResult, ToolSpec, json_result
from tests.server.tools.conftest import decoded, error_of


class EchoArguments(Arguments, frozen=True):
    text: str = "nothing"
    count: int = 1


class Echo:
    """A tool that does what the test says."""

    def __init__(
        self,
        name: str = "echo",
        work: Callable[[EchoArguments], Awaitable[ToolResult]] | None = None,
        timeout_seconds: float = 5,
        output_cap_bytes: int = 1_000,
    ) -> None:
        self.spec = ToolSpec(
            name=name,
            description="Gives back what it got.",
            parameters=schema_of(EchoArguments),
            kind="write",
            parallel=False,
            timeout_seconds=timeout_seconds,
            output_cap_bytes=output_cap_bytes,
        )
        self._work = work or _echo

    def kind_of(self, arguments: Mapping[str, object]) -> Kind:
        return "wait" if arguments.get("text") == "wait" else "write"

    async def run(self, arguments: Mapping[str, object], context: ToolContext) -> ToolResult:
        return await self._work(decode(arguments, EchoArguments))


async def _echo(wanted: EchoArguments) -> ToolResult:
    return ToolResult(wanted.text * wanted.count)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("{", "JSON"),
        ("[1]", "object"),
        ('"text"', "object"),
        ("NaN", "JSON"),
        ("{}{}", "JSON"),
        ('{"text": NaN}', "JSON"),
        ('{"text": "\\ud800"}', "JSON"),
        ('{"text": "\ud800"}', "JSON"),
        ('{"text": 1}', "Expected `str`, got `int` - at `$.text`"),
        ('{"count": "1"}', "Expected `int`, got `str` - at `$.count`"),
        ('{"count": true}', "Expected `int`, got `bool` - at `$.count`"),
        ('{"txt": "a"}', "unknown field `txt`. Right is: {text?: string, count?: integer}"),
        ("[" * 100_000, "JSON"),
    ],
)
async def test_bad_arguments_get_a_result_that_says_what_is_right(
    arguments: str, words: str, context: ToolContext
) -> None:
    result = await Registry([Echo()]).dispatch("echo", arguments, context)
    assert error_of(result) == "bad_arguments"
    assert words in decoded(result)["message"]


@pytest.mark.parametrize("arguments", ["", "  ", "{}", '{"text": null}'])
async def test_empty_arguments_and_nulls_count_as_left_out(
    arguments: str, context: ToolContext
) -> None:
    result = await Registry([Echo()]).dispatch("echo", arguments, context)
    assert result.content == "nothing"


@pytest.mark.parametrize("name", ["", "ECHO", "rm -rf", "\ud800", "x" * 100_000])
async def test_unknown_tool_gets_a_result_that_names_the_known_ones(
    name: str, context: ToolContext
) -> None:
    result = await Registry([Echo("b"), Echo("a")]).dispatch(name, "{}", context)
    assert error_of(result) == "bad_arguments"
    assert decoded(result)["message"].endswith("the tools are: a, b")
    assert len(result.content) < 300


async def test_tool_that_takes_too_long_is_stopped(context: ToolContext) -> None:
    stopped = asyncio.Event()

    async def hang(wanted: EchoArguments) -> ToolResult:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()
        raise AssertionError

    registry = Registry([Echo(work=hang, timeout_seconds=0.05)])
    result = await registry.dispatch("echo", "{}", context)
    assert error_of(result) == "timeout"
    assert stopped.is_set()


async def test_broken_tool_is_logged_without_its_arguments(
    context: ToolContext, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(wanted: EchoArguments) -> ToolResult:
        raise LookupError(f"no place for {wanted.text}")

    result = await Registry([Echo(work=fail)]).dispatch("echo", '{"text": "s3cret"}', context)
    assert error_of(result) == "internal"
    assert "s3cret" not in result.content
    [record] = caplog.records
    assert record.levelno == logging.ERROR
    assert "LookupError" in caplog.text
    assert "test_registry.py" in caplog.text
    assert "s3cret" not in caplog.text


async def test_timeout_error_of_the_tool_itself_is_not_taken_for_ours(
    context: ToolContext,
) -> None:
    async def fail(wanted: EchoArguments) -> ToolResult:
        raise TimeoutError

    result = await Registry([Echo(work=fail)]).dispatch("echo", "{}", context)
    assert error_of(result) == "internal"


async def test_error_for_the_model_keeps_its_code(context: ToolContext) -> None:
    async def fail(wanted: EchoArguments) -> ToolResult:
        raise ToolError("no_paper", "put paper in")

    result = await Registry([Echo(work=fail)]).dispatch("echo", "{}", context)
    assert decoded(result) == {"error": "no_paper", "message": "put paper in"}
    assert result.is_error


async def test_cancelling_passes_through(context: ToolContext) -> None:
    started = asyncio.Event()

    async def hang(wanted: EchoArguments) -> ToolResult:
        started.set()
        await asyncio.Event().wait()
        raise AssertionError

    task = asyncio.create_task(Registry([Echo(work=hang)]).dispatch("echo", "{}", context))
    await started.wait()
    task.cancel()
    await asyncio.wait({task})
    assert task.cancelled()


async def test_text_is_cleaned_for_the_store(context: ToolContext) -> None:
    async def dirty(wanted: EchoArguments) -> ToolResult:
        return ToolResult("a\x00b\ud800c")

    result = await Registry([Echo(work=dirty)]).dispatch("echo", "{}", context)
    assert result.content == "ab\ufffdc"


async def test_long_json_result_stays_json_and_says_that_it_was_cut(context: ToolContext) -> None:
    async def talk(wanted: EchoArguments) -> ToolResult:
        return json_result({"n": 1, "text": 'wo"rd\n' * 1_000, "truncated": False, "z": "kept"})

    result = await Registry([Echo(work=talk)]).dispatch("echo", "{}", context)
    fields = decoded(result)
    assert len(result.content.encode()) <= 1_000
    assert result.truncated
    assert (fields["n"], fields["truncated"], fields["z"]) == (1, True, "kept")
    assert "…[cut: 5 KB, sha256 " in fields["text"]


def test_definitions_are_sorted_and_the_same_bytes_in_any_order() -> None:
    one = Registry([Echo("b"), Echo("a")]).definitions_json()
    two = Registry([Echo("a"), Echo("b")]).definitions_json()
    assert one == two
    first, second = json.loads(one)
    assert (first["function"]["name"], second["function"]["name"]) == ("a", "b")
    assert first == {
        "type": "function",
        "function": {
            "name": "a",
            "description": "Gives back what it got.",
            "parameters": {
                "type": "object",
                "properties": {
                    "text": {"type": "string", "default": "nothing"},
                    "count": {"type": "integer", "default": 1},
                },
                "required": [],
                "additionalProperties": False,
            },
        },
    }


def test_the_kind_of_a_call_depends_on_its_arguments() -> None:
    registry = Registry([Echo()])
    assert registry.kind_of("echo", '{"text": "wait"}') == "wait"
    assert registry.kind_of("echo", "{}") == "write"
    assert registry.kind_of("echo", "not JSON") == "write"
    assert registry.kind_of("no such tool", "{}") == "read"


def test_spec_of_an_unknown_name_is_none() -> None:
    registry = Registry([Echo()])
    assert registry.spec("nothing") is None
    spec = registry.spec("echo")
    assert spec is not None
    assert spec.name == "echo"


def test_two_tools_cannot_have_one_name() -> None:
    with pytest.raises(ValueError, match="same name"):
        Registry([Echo(), Echo()])
