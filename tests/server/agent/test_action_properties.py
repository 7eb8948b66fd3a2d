"""Wherever a process dies, and however often: no call has its effect twice, and no answer lies."""

import asyncio
import json
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from zoneinfo import ZoneInfo

from hypothesis import given, settings
from hypothesis import strategies as st

from channels.events import RunEvent
from guard import RULES
from server.agent.calls import Answer, CallRunner
from server.agent.consent import Consent
from server.agent.context import RunContext
from server.agent.judge import Judge, RunPolicy
from server.agent.prompt import Prompt
from server.agent.texts import PromptTexts
from server.message import ToolCall
from server.settings import ApprovalSettings
from server.store.actions import ActionState, load_actions
from server.store.blobs import Blobs
from server.store.engine import Store, open_store
from server.store.runs import claim_expired
from server.tools.base import Found, Kind, Registry, ToolContext, ToolResult, ToolSpec, json_result
from tests.server.store.rows import later, make_running, make_session


class Death(BaseException):
    """The process is gone; nobody catches that."""


@dataclass
class Fate:
    """At which steps the process dies; each entry is one step that is lived through or not."""

    deaths: Iterator[bool]

    def step(self) -> None:
        """Die, or go on."""
        if next(self.deaths, False):
            raise Death


@dataclass
class World:
    """What calls did to it, in order."""

    effects: list[str] = field(default_factory=list)


class Doing:
    """Leaves its call's id in the world."""

    def __init__(
        self, name: str, kind: Kind, world: World, fate: Fate, *, parallel: bool = False
    ) -> None:
        self.spec = ToolSpec(name, "", {}, kind, parallel, 5.0, 10_000)
        self._world, self._fate = world, fate

    def kind_of(self, arguments: Mapping[str, object]) -> Kind:
        return self.spec.kind

    async def run(self, arguments: Mapping[str, object], context: ToolContext) -> ToolResult:
        self._fate.step()
        await asyncio.sleep(0)  # others of the same batch get their turn
        if self.spec.kind != "read":
            self._world.effects.append(context.call_id)
        self._fate.step()
        return json_result({"done": context.call_id})


class Telling(Doing):
    """One that can tell afterwards."""

    async def mark(self, arguments: Mapping[str, object], context: ToolContext) -> str:
        self._fate.step()
        return "marked"

    async def lookup(
        self, arguments: Mapping[str, object], mark: str, context: ToolContext
    ) -> Found:
        assert mark == "marked"
        self._fate.step()
        was_done = context.call_id in self._world.effects
        return json_result({"done": context.call_id}) if was_done else "not_done"


class Silence:
    """Takes events."""

    def emit(self, event: RunEvent) -> None:
        """Nobody listens."""


@dataclass(frozen=True)
class Life:
    """What a process makes of one round, until it dies."""

    store: Store
    folder: Path
    registry: Registry

    async def live(
        self, context: RunContext, calls: Sequence[ToolCall], *, is_first: bool
    ) -> list[Answer] | None:
        """The answers; None if it died."""
        consent = Consent(self.registry, ApprovalSettings(web="never"))
        runner = CallRunner(self.registry, consent, self.store, Blobs(self.folder), RULES)
        work = runner.run if is_first else runner.settle
        try:
            return await work(context, calls, Silence())
        except Death:
            return None


async def round_of(
    store: Store, folder: Path, names: Sequence[str], deaths: Sequence[bool]
) -> tuple[World, list[Answer], list[ActionState | None]]:
    """What became of a round of calls; and the states of their actions before it is closed."""
    world, fate = World(), Fate(iter(deaths))
    registry = Registry(
        [
            Doing("read", "read", world, fate, parallel=True),
            Doing("mute", "write", world, fate),
            Telling("write", "write", world, fate),
            Telling("send", "send", world, fate, parallel=True),
        ]
    )
    session = await make_session(store)
    run = await make_running(store, "r1", session_id="s1")
    calls = [ToolCall(f"call-{number}", name, "{}") for number, name in enumerate(names)]
    answers, attempt = None, 0
    while answers is None:
        if attempt:
            async with store.write() as db:
                now = later(100 * attempt)
                await claim_expired(db, "next", now, now, any_owner=True)
        attempt += 1
        context = RunContext(
            session=session,
            run=replace(run, attempt=attempt),
            prompt=Prompt(texts=PromptTexts("en"), zone=ZoneInfo("UTC")),
            messages=[],
            notices=[],
            judge=Judge(RunPolicy(), RULES),
            workspace=folder,
            tools_json=b"[]",
        )
        life = Life(store, folder, registry)
        answers = await life.live(context, calls, is_first=attempt == 1)
    async with store.read() as db:
        known = await load_actions(db, "s1", [call.id for call in calls])
    states = [action.state if (action := known.get(call.id)) else None for call in calls]
    return world, answers, states


@settings(max_examples=80, deadline=None)
@given(
    names=st.lists(st.sampled_from(["read", "mute", "write", "send"]), min_size=1, max_size=5),
    deaths=st.lists(st.booleans(), max_size=12),
)
def test_no_call_has_its_effect_twice_and_no_answer_lies(
    sqlite_template: Path, names: list[str], deaths: list[bool]
) -> None:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        shutil.copyfile(sqlite_template, folder / "a.db")

        async def story() -> tuple[World, list[Answer], list[ActionState | None]]:
            async with open_store(f"sqlite:///{folder / 'a.db'}") as store:
                return await round_of(store, folder, names, deaths)

        world, answers, states = asyncio.run(story())
    done = Counter(world.effects)
    assert set(done.values()) <= {1}
    assert len(answers) == len(names)
    for name, answer, state in zip(names, answers, states, strict=True):
        call_id = answer.message.tool_call_id
        assert call_id is not None
        evidence = answer.message.evidence
        assert evidence is not None
        is_sure = json.loads(answer.message.text) == {"done": call_id}
        assert is_sure == (not evidence.harness)
        assert answer.effect == (None if name == "read" else "DONE" if is_sure else "UNKNOWN")
        assert (state is None) == (name == "read")
        if name == "mute":
            assert is_sure <= (done[call_id] == 1), "a call is told as done that was not"
        elif name != "read":
            assert is_sure, "whoever can tell leaves nothing unknown"
            assert done[call_id] == 1


@settings(max_examples=40, deadline=None)
@given(
    names=st.lists(st.sampled_from(["mute", "write"]), min_size=2, max_size=5),
    deaths=st.lists(st.booleans(), max_size=12),
)
def test_effects_keep_the_order_of_the_calls(
    sqlite_template: Path, names: list[str], deaths: list[bool]
) -> None:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        shutil.copyfile(sqlite_template, folder / "a.db")

        async def story() -> World:
            async with open_store(f"sqlite:///{folder / 'a.db'}") as store:
                world, _, _ = await round_of(store, folder, names, deaths)
                return world

        effects = asyncio.run(story()).effects
    assert effects == sorted(effects)
