"""The opened application on a fresh database, spoken to through its inbox and read by its log."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from channels.clock import SYSTEM, Clock
from channels.port import Inbound, Submitted
from server.app import open_state
from server.message import Message
from server.settings import Settings, load_settings
from server.state import State
from server.store.decisions import (
    Decision,
    ShadowDecision,
    load_decisions,
    load_shadow_decisions,
)
from server.store.messages import load_page, load_prompt_messages
from server.store.runs import Run, list_runs, load_run
from server.store.sessions import Session, load_session
from tests.agui_rules import check_sequence
from tests.fakes.llm import Recorded
from tests.waiting import until

Event: TypeAlias = dict[str, Any]

ENDS = frozenset({"RUN_FINISHED", "RUN_ERROR"})

ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/nonexistent", "LANG": "C.UTF-8"}
"""What the tests' tools inherit."""


def is_title(request: Recorded) -> bool:
    """A request for a session's title is the only small one without tools."""
    return "tools" not in request.json and "max_tokens" in request.json


def settings_for(
    folder: Path, database_url: str, gateway_url: str | None, **variables: str
) -> Settings:
    """Settings of a server that works below *folder*."""
    environment = {
        "HEADWAY_DATA_DIR": str(folder),
        "HEADWAY_DATABASE_URL": database_url,
        "HEADWAY_TOKENS": "admin-token,ann=ann-token,bob=bob-token",
        "HEADWAY_TIMEZONE": "Asia/Shanghai",
        "HEADWAY_PORT": "0",
        "HEADWAY_LOG_LEVEL": "DEBUG",
    }
    if gateway_url is not None:
        environment |= {
            "HEADWAY_MODEL_BASE_URL": gateway_url,
            "HEADWAY_MODEL_API_KEY": "gateway-key",
            "HEADWAY_MODEL": "scripted",
        }
    return load_settings(environment | variables)


class _Ear:
    """Hears when a log grew."""

    def __init__(self) -> None:
        self.grew = asyncio.Event()

    def wake(self) -> None:
        self.grew.set()


@dataclass(frozen=True, slots=True)
class House:
    """An open application."""

    state: State

    @property
    def workspace(self) -> Path:
        """Where the tools work."""
        return self.state["settings"].workspace

    async def create(self, owner: str = "ann", **given: Any) -> Session:
        """A new session."""
        return await self.state["inbox"].create_session(owner, **given)

    async def say(self, session: Session, text: str, key: str = "", **given: Any) -> Submitted:
        """Submit a message."""
        keys = [f"test:{session.id}:{key or text}"]
        inbound = Inbound("web", text, keys, session_id=session.id, **given)
        return await self.state["inbox"].submit(inbound)

    async def ended(self, session: Session, runs: int = 1) -> list[Event]:
        """All events of the session, once so many of its runs have ended."""
        return await self.until(
            session, lambda events: sum(event["type"] in ENDS for event in events) >= runs
        )

    async def until(self, session: Session, holds: Any) -> list[Event]:
        """All events of the session, once *holds* is true of them."""
        ear = _Ear()
        ring = self.state["logs"].of(session.id)
        ring.listen(ear)
        try:
            async with asyncio.timeout(30):
                while not holds(events := self.events(session)):
                    ear.grew.clear()
                    await ear.grew.wait()
        finally:
            ring.unlisten(ear)
        check_sequence(events)
        return events

    def events(self, session: Session) -> list[Event]:
        """The session's events so far."""
        logged = self.state["logs"].of(session.id).read(0, 100_000_000)
        return [json.loads(entry.body) for entry in logged]

    async def ask(self, session: Session, text: str, **given: Any) -> list[Event]:
        """Submit a message and wait for the end of its run; its events alone."""
        before = len(self.events(session))
        ends = sum(event["type"] in ENDS for event in self.events(session))
        await self.say(session, text, **given)
        return (await self.ended(session, ends + 1))[before:]

    async def settled(self, session: Session) -> Session:
        """The session once no run of it is under way."""

        async def rests() -> bool:
            return (await self.state["inbox"].state_of(session.id)).run is None

        await until(rests)
        return await self.session(session)

    async def session(self, session: Session) -> Session:
        """The session as it is stored now."""
        async with self.state["store"].read() as db:
            return await load_session(db, session.id)

    async def messages(self, session: Session) -> list[Message]:
        """The default history."""
        async with self.state["store"].read() as db:
            return await load_page(db, session.id, before_seq=None, limit=10_000)

    async def prompt_messages(self, session: Session) -> list[Message]:
        """What the next prompt is made from."""
        async with self.state["store"].read() as db:
            return await load_prompt_messages(db, session.id)

    async def runs(self, session: Session) -> list[Run]:
        """The session's runs, newest first."""
        async with self.state["store"].read() as db:
            return await list_runs(db, session.id, 100)

    async def run(self, run_id: str) -> Run:
        """One run."""
        async with self.state["store"].read() as db:
            return await load_run(db, run_id)

    async def decisions(self, run_id: str) -> list[Decision]:
        """What the guard made of the run's rounds."""
        async with self.state["store"].read() as db:
            return await load_decisions(db, run_id)

    async def shadows(self, run_id: str) -> list[ShadowDecision]:
        """What policies that only record would have made of them."""
        async with self.state["store"].read() as db:
            return await load_shadow_decisions(db, run_id)


@asynccontextmanager
async def open_house(
    settings: Settings, environment: Mapping[str, str] = ENVIRONMENT, clock: Clock = SYSTEM
) -> AsyncIterator[House]:
    """The application on these settings; leaving ends it as a clean stop does."""
    async with open_state(settings, environment, asyncio.Event(), clock) as state:
        yield House(state)


def assert_prefixes(requests: Sequence[Recorded]) -> None:
    """Each request but for its closing brackets is a byte prefix of the next one."""
    for number, (earlier, later) in enumerate(zip(requests, requests[1:], strict=False), start=1):
        body = earlier.body.rstrip(b"}").rstrip(b"]")
        assert later.body.startswith(body), f"request {number + 1} does not extend {number}"


def notices_in(request: Recorded) -> list[str]:
    """The guard's notices in a request, in order."""
    return [
        message["content"]
        for message in request.messages
        if message["role"] == "user"
        and isinstance(message["content"], str)
        and message["content"].startswith("<system-notice>")
    ]
