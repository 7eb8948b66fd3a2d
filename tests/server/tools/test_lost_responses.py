"""A tool that gives nothing back is asked what became of the call, before anybody repeats it."""

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import pytest

from server.errors import ToolError
from server.tools.arguments import Arguments, decode, schema_of
from server.tools.base import (
    Found,
    Kind,
    Registry,
    ToolContext,
    ToolResult,
    ToolSpec,
    Unknown,
    Verifiable,
)
from tests.server.tools.conftest import decoded, error_of

Way = Literal["well", "hangs", "hangs before", "breaks", "breaks before", "refuses"]


class OrderArguments(Arguments, frozen=True):
    way: Way = "well"


class Shop:
    """Takes orders into a file, and loses its answers; cannot tell what it took."""

    def __init__(self, kind: Kind = "write", timeout_seconds: float = 0.1) -> None:
        self.spec = ToolSpec(
            name="shop",
            description="Orders something.",
            parameters=schema_of(OrderArguments),
            kind=kind,
            parallel=False,
            timeout_seconds=timeout_seconds,
            output_cap_bytes=1_000,
        )

    def kind_of(self, arguments: Mapping[str, object]) -> Kind:
        return self.spec.kind

    async def run(self, arguments: Mapping[str, object], context: ToolContext) -> ToolResult:
        way = decode(arguments, OrderArguments).way
        if way == "refuses":
            raise ToolError("sold_out", "come back tomorrow")
        if not way.endswith("before"):
            with ledger_of(context).open("a") as file:
                file.write(f"{context.call_id}\n")
        if way.startswith("hangs"):
            await asyncio.Event().wait()
        if way.startswith("breaks"):
            raise LookupError
        return ToolResult("ordered")


class OpenShop(Shop):
    """One that can tell, as long as its books are there."""

    async def mark(self, arguments: Mapping[str, object], context: ToolContext) -> str:
        match decode(arguments, OrderArguments).way:
            case "refuses":
                raise ToolError("sold_out", "come back tomorrow")
            case "hangs before":
                await asyncio.Event().wait()
            case "breaks before":
                raise LookupError
        return "open"

    async def lookup(
        self, arguments: Mapping[str, object], mark: str, context: ToolContext
    ) -> Found:
        match mark:
            case "shut":
                return Unknown("ring at the door")
            case "moved":
                return "unknown"
            case "hangs":
                await asyncio.Event().wait()
            case "breaks":
                raise LookupError
            case "refuses":
                raise ToolError("no", "no")
        return ToolResult("x" * 2_000) if ledger_of(context).exists() else "not_done"


def ledger_of(context: ToolContext) -> Path:
    return context.workspace / "ledger"


def asked(way: Way) -> str:
    return f'{{"way": "{way}"}}'


def test_shops_are_told_apart() -> None:
    assert isinstance(OpenShop(), Verifiable)
    assert not isinstance(Shop(), Verifiable)


@pytest.mark.parametrize("way", ["hangs", "breaks"])
async def test_call_that_was_done_gets_its_result_after_all(way: Way, context: ToolContext) -> None:
    result = await Registry([OpenShop()]).dispatch("shop", asked(way), context, "open")
    assert not result.is_error
    assert not result.is_unsure
    assert result.truncated, "it is cut as any result"


@pytest.mark.parametrize(
    ("way", "code", "words"),
    [
        ("hangs before", "timeout", "stopped after 0.1 seconds without a result"),
        ("breaks before", "internal", "shop failed inside; this is not your fault"),
    ],
)
async def test_call_that_was_not_done_may_be_repeated(
    way: Way, code: str, words: str, context: ToolContext
) -> None:
    result = await Registry([OpenShop()]).dispatch("shop", asked(way), context, "open")
    assert error_of(result) == code
    assert decoded(result)["message"] == f"{words}; it was not done and may be repeated"
    assert not result.is_unsure


@pytest.mark.parametrize(
    ("mark", "detail"),
    [("moved", ""), ("shut", ": ring at the door"), ("breaks", ""), ("refuses", "")],
)
async def test_call_of_which_nobody_knows_must_be_looked_for(
    mark: str, detail: str, context: ToolContext
) -> None:
    result = await Registry([OpenShop()]).dispatch("shop", asked("hangs"), context, mark)
    assert error_of(result) == "timeout"
    words = "stopped after 0.1 seconds without a result; outcome unknown, verify before repeating"
    assert decoded(result)["message"] == words + detail
    assert result.is_unsure


@pytest.mark.parametrize("kind", ["write", "send"])
async def test_tool_that_cannot_tell_leaves_it_unknown(kind: Kind, context: ToolContext) -> None:
    result = await Registry([Shop(kind)]).dispatch("shop", asked("hangs"), context)
    assert decoded(result)["message"].endswith("; outcome unknown, verify before repeating")
    assert result.is_unsure


@pytest.mark.parametrize("kind", ["read", "wait"])
async def test_call_that_changes_nothing_is_told_as_it_is(kind: Kind, context: ToolContext) -> None:
    result = await Registry([OpenShop(kind)]).dispatch("shop", asked("hangs"), context)
    assert decoded(result)["message"] == "stopped after 0.1 seconds without a result"
    assert not result.is_unsure


async def test_refusal_of_the_tool_is_sure(context: ToolContext) -> None:
    result = await Registry([OpenShop()]).dispatch("shop", asked("refuses"), context, "open")
    assert error_of(result) == "sold_out"
    assert not result.is_unsure


@pytest.mark.parametrize(
    ("way", "code", "words"),
    [
        ("refuses", "sold_out", "come back tomorrow"),
        (
            "hangs before",
            "timeout",
            "stopped after 0.1 seconds without a result; it was not done and may be repeated",
        ),
        (
            "breaks before",
            "internal",
            "shop failed inside; this is not your fault; it was not done and may be repeated",
        ),
    ],
)
async def test_call_that_cannot_be_marked_does_not_begin(
    way: Way, code: str, words: str, context: ToolContext
) -> None:
    with pytest.raises(ToolError) as refused:
        await Registry([OpenShop()]).mark("shop", asked(way), context)
    assert (refused.value.code, str(refused.value)) == (code, words)


async def test_nothing_is_noted_where_nothing_can_be_looked_up(context: ToolContext) -> None:
    registry = Registry([Shop()])
    assert await registry.mark("shop", "{}", context) == ""
    assert await registry.mark("no such tool", "{}", context) == ""
    assert await registry.lookup("shop", "{}", "", context) == "unknown"
    assert await registry.lookup("no such tool", "{}", "", context) == "unknown"


async def test_bad_arguments_do_not_begin_and_their_end_is_unknown(context: ToolContext) -> None:
    registry = Registry([OpenShop()])
    with pytest.raises(ToolError, match="JSON"):
        await registry.mark("shop", "{", context)
    assert await registry.lookup("shop", "{", "open", context) == "unknown"


async def test_lookup_that_breaks_is_logged_without_arguments(
    context: ToolContext, caplog: pytest.LogCaptureFixture
) -> None:
    assert await Registry([OpenShop()]).lookup("shop", "{}", "breaks", context) == "unknown"
    [record] = caplog.records
    assert record.levelno == logging.ERROR
    assert "LookupError" in caplog.text


async def test_cancelling_passes_through_a_lookup(context: ToolContext) -> None:
    looking = Registry([OpenShop()]).lookup("shop", "{}", "hangs", context)
    task = asyncio.create_task(looking)
    await asyncio.wait({task}, timeout=0.05)
    task.cancel()
    await asyncio.wait({task})
    assert task.cancelled()
