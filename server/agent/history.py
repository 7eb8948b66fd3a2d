"""Loads a session's history and takes from it all that a run needs to go on."""

import asyncio
import logging
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final
from zoneinfo import ZoneInfo

from guard import Rules
from server.agent.acting import last_turn_notices, notices_of
from server.agent.context import RunContext
from server.agent.judge import Judge, Judgement
from server.agent.pictures import Pictures
from server.agent.policies import Policies
from server.agent.prompt import Prompt
from server.agent.texts import PromptTexts
from server.agent.uploads import place_uploads
from server.contract import ProgressContract, run_contract
from server.message import Message, files_of
from server.store.blobs import Blobs
from server.store.engine import Store
from server.store.explorations import root_run
from server.store.messages import last_seq, load_before, load_prompt_messages
from server.store.runs import Run
from server.store.sessions import Session
from server.store.toolsets import bind_toolset, load_toolset, toolset_digest
from server.store.usage import run_usage
from server.tools.base import Registry

log = logging.getLogger(__name__)

_TOOLLESS: Final = frozenset({"compact", "deliver"})
"""Triggers of runs that show no tools to the model, and so fix none."""


class History:
    """Builds run contexts from the store."""

    def __init__(
        self,
        *,
        store: Store,
        blobs: Blobs,
        rules: Rules,
        policies: Policies,
        workspace: Path,
        registry: Registry,
    ) -> None:
        self._store = store
        self._blobs = blobs
        self._pictures = Pictures(store, blobs)
        self._rules = rules
        self._policies = policies
        self._workspace = workspace
        self._registry = registry

    async def open(self, run: Run, session: Session, cancelled: asyncio.Event) -> RunContext:
        """The context of a run as the store has it, after a restart as well.

        Args:
            cancelled: Set when a person stops the run.
        """
        async with self._store.read() as db:
            messages = await load_prompt_messages(db, session.id)
            newest_seq = await last_seq(db, session.id)
            usage = await run_usage(db, run.id)
            tools_json = await load_toolset(db, session.id)
            root_run_id = await root_run(db, session) if session.kind == "subagent" else None
        contract = run_contract(run.input.contract if run.input is not None else None)
        context = RunContext(
            session=session,
            run=run,
            prompt=new_prompt(session),
            messages=[],
            notices=[],
            judge=self._new_judge(session, contract),
            workspace=self._workspace,
            tools_json=await self._fixed(run, tools_json),
            rounds=rounds_of(run, messages),
            usage=usage,
            cancelled=cancelled,
            contract=contract,
            root_run_id=root_run_id,
        )
        await self._place_files(messages)
        await self._apply(context, messages, newest_seq)
        return context

    async def _fixed(self, run: Run, tools_json: bytes | None) -> bytes:
        """The session's tools as the model first saw them; with its first run, those of now.

        What the process offers changes with its version and with MCP servers. A request must not:
        a prompt that begins otherwise than the one before is paid for anew as a whole.
        """
        offered = self._registry.definitions_json()
        if tools_json is None:
            if run.trigger in _TOOLLESS:
                return offered
            async with self._store.write() as db:
                tools_json = await bind_toolset(db, run.session_id, offered, datetime.now(UTC))
        if tools_json != offered:
            log.info(
                "[prompt] tools changed in mid-session session=%s fixed=%s offered=%s",
                run.session_id,
                toolset_digest(tools_json)[:16],
                toolset_digest(offered)[:16],
            )
        return tools_json

    async def reload(self, context: RunContext) -> None:
        """Take the history anew after it was compacted; notices and streak follow from it."""
        async with self._store.read() as db:
            messages = await load_prompt_messages(db, context.session.id)
            newest_seq = await last_seq(db, context.session.id)
        context.prompt = new_prompt(context.session)
        await self._apply(context, messages, newest_seq)

    async def _apply(
        self, context: RunContext, messages: Sequence[Message], newest_seq: int
    ) -> None:
        """Give *context* these messages, and what the guard makes of them."""
        context.clear()
        context.extend(messages)
        context.last_seq = newest_seq  # superseded messages are not in the window
        await self._judge(context, messages)
        context.call_ids = {call.id for message in messages for call in message.tool_calls}
        context.pictures = await self._pictures.load(messages)

    def _new_judge(self, session: Session, contract: ProgressContract | None) -> Judge:
        policy = self._policies.of(session.kind, contract)
        return Judge(policy, self._rules)

    async def _judge(self, context: RunContext, messages: Sequence[Message]) -> None:
        """Let the policies live through the window, and through what of its turn left it.

        A contract outlives turns, so with one they live through all that ever left it.
        """
        lived = list(messages)
        head = messages[0].summary_of if messages else None
        if head is not None:
            async with self._store.read() as db:
                whole = context.contract is not None
                taken = await load_before(db, context.session.id, head.first_kept_seq, whole=whole)
            lived = [*taken, *messages]
        context.judge = self._new_judge(context.session, context.contract)
        context.judgement = None
        judgements: list[Judgement] = []
        for judgement in context.judge.replay(lived):
            context.judgement = judgement
            judgements += [judgement] if judgement is not None else []
        locale = context.session.locale
        context.notices = [notice for one in judgements for notice in notices_of(one, locale)]
        context.notices += last_turn_notices(judgements, messages, context.judge.policy, locale)
        context.facts = facts_of(context.contract, lived)

    async def admit_files(self, context: RunContext, messages: Sequence[Message]) -> None:
        """Give the run the files of *messages* that joined it, as `open` does for earlier ones."""
        await self._place_files(messages)
        context.pictures |= await self._pictures.load(messages)

    async def _place_files(self, messages: Sequence[Message]) -> None:
        files = [part for message in messages for part in files_of(message.content)]
        await place_uploads(self._store, self._blobs, files, self._workspace)


def new_prompt(session: Session) -> Prompt:
    """An empty prompt in the session's language and time zone."""
    return Prompt(texts=PromptTexts(session.locale), zone=ZoneInfo(session.timezone))


def rounds_of(run: Run, messages: Iterable[Message]) -> int:
    """How many rounds the run began; compaction may have hidden some, the row counts all."""
    seen = sum(1 for m in messages if m.run_id == run.id and m.role == "assistant")
    return max(run.rounds, seen)


def facts_of(contract: ProgressContract | None, messages: Iterable[Message]) -> dict[str, str]:
    """By item of the contract, what the results in *messages* verified last."""
    facts: dict[str, str] = {}
    if contract is not None:
        for message in messages:
            evidence = message.evidence
            if evidence is not None and evidence.contract == contract.key:
                facts |= evidence.facts
    return facts
