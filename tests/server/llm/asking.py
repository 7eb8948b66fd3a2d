"""Asking a model in tests: requests in a line, replies without their timings."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime

from server.llm.openai import ModelSettings, OpenAIModel, Timing, open_model
from server.llm.port import Model, ModelEvent, ModelRequest, Purpose, Reply
from tests.fakes.llm import Play, ScriptedGateway, serve_gateway

KEY = "sk-secret-of-the-test"
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)

TOOLS = json.dumps(
    [
        {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}}
        for name in ("list_dir", "read_file", "grep_search", "shell")
    ]
).encode()


def message(role: str, content: str, **more: object) -> dict[str, object]:
    """A chat message."""
    return {"role": role, "content": content, **more}


def ask(*messages: dict[str, object] | str, purpose: Purpose = "agent") -> ModelRequest:
    """A request; a bare string is a user's text."""
    sent = [message("user", m) if isinstance(m, str) else m for m in messages or ("hi",)]
    return ModelRequest([json.dumps(m, ensure_ascii=False).encode() for m in sent], TOOLS, purpose)


async def events_of(model: Model, request: ModelRequest | None = None) -> list[ModelEvent]:
    """All events of one stream."""
    return [event async for event in model.stream(request or ask())]


async def reply_of(model: Model, request: ModelRequest | None = None) -> Reply:
    """The last event of one stream."""
    last = (await events_of(model, request))[-1]
    assert isinstance(last, Reply)
    return last


def calls_of(reply: Reply) -> list[tuple[str, str]]:
    """Name and arguments of each call."""
    return [(call.name, call.arguments) for call in reply.calls]


class Pauses:
    """A sleep that ends at once and remembers how long it should have been."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)


def timing(pauses: Pauses | None = None, dice: Callable[[], float] = lambda: 1.0) -> Timing:
    """Real clocks for durations, the rest fixed."""
    return Timing(now=lambda: NOW, sleep=pauses or Pauses(), random=dice)


@asynccontextmanager
async def asked(
    *script: Play, pauses: Pauses | None = None, settings: ModelSettings | None = None
) -> AsyncIterator[tuple[OpenAIModel, ScriptedGateway]]:
    """A model whose gateway plays *script*."""
    async with serve_gateway(script) as gateway:
        given = settings or ModelSettings(base_url="", model="m")
        placed = replace(given, base_url=gateway.url, api_key=KEY)
        async with open_model(placed, timing(pauses)) as model:
            yield model, gateway
