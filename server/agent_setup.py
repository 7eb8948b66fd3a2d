"""Joins the agent: the model that is asked, the tools that it is shown, and the loop over both."""

from contextlib import AsyncExitStack
from dataclasses import dataclass

from guard import Rules
from server.agent.calls import CallRunner
from server.agent.compaction import CompactionSettings, Compactor
from server.agent.consent import Consent
from server.agent.exploration import Explorations
from server.agent.history import History
from server.agent.journal import Journal
from server.agent.loop import AgentLoop
from server.agent.policies import policies_of
from server.delegate import Delegate
from server.delivery import Deliveries
from server.ground import Ground
from server.llm.builtin import BuiltinModel
from server.llm.openai import ModelSettings, open_model
from server.llm.port import Model
from server.settings import Settings
from server.tools.ask import AskUser
from server.tools.base import Registry, Tool
from server.tools.files import EditFile, ListDir, ReadFile, WriteFile
from server.tools.handoff import HandOff
from server.tools.image import ViewImage
from server.tools.mcp import McpServers, contracts_of
from server.tools.schedule import (
    ListScheduledTasks,
    ScheduleTask,
    Tasks,
)
from server.tools.search import GrepSearch, find_ripgrep
from server.tools.send import SendMessage
from server.tools.shell import Shells, ShellTool
from server.tools.subagents import SpawnSubagent, WaitSubagents


@dataclass(frozen=True, slots=True)
class Agent:
    """What executes a run."""

    history: History
    loop: AgentLoop


async def open_chosen_model(opened: AsyncExitStack, settings: Settings) -> Model:
    """The model that the settings name; the built-in one without an address."""
    chosen = settings.model
    if chosen.base_url is None:
        return BuiltinModel()
    key = chosen.api_key.get_secret_value() if chosen.api_key is not None else ""
    return await opened.enter_async_context(
        open_model(
            ModelSettings(
                base_url=chosen.base_url,
                model=chosen.name,
                api_key=key,
                locale=settings.locale,
            )
        )
    )


def join_agent(
    ground: Ground, model: Model, shells: Shells, mcp: McpServers, tasks: Tasks
) -> Agent:
    """The history and the loop, over one registry of tools and the same rules for the guard."""
    settings, store, blobs = ground.settings, ground.store, ground.blobs
    registry = Registry(_tools(ground, shells, tasks), mcp)
    rules = Rules(contracts={**registry.contracts(), **contracts_of(settings.mcp)})
    history = History(
        store=store,
        blobs=blobs,
        rules=rules,
        policies=policies_of(settings.policy),
        workspace=settings.workspace.resolve(),
        registry=registry,
    )
    journal = Journal(store, ground.metrics)
    consent = Consent(registry, settings.approvals)
    compactor = Compactor(
        model=model,
        history=history,
        journal=journal,
        settings=CompactionSettings(
            context_tokens=settings.model.context_tokens,
            trigger_ratio=settings.compaction.trigger_ratio,
            keep_rounds=settings.compaction.keep_rounds,
        ),
    )
    loop = AgentLoop(
        model=model,
        history=history,
        calls=CallRunner(registry, consent, store, blobs, rules),
        journal=journal,
        compactor=compactor,
        consent=consent,
        explorations=Explorations(store),
    )
    return Agent(history, loop)


def _tools(ground: Ground, shells: Shells, tasks: Tasks) -> list[Tool]:
    settings, store, signals = ground.settings, ground.store, ground.signals
    tools: list[Tool] = [
        ReadFile(),
        WriteFile(),
        EditFile(),
        ListDir(),
        ViewImage(),
        GrepSearch(find_ripgrep()),
        AskUser(),
        HandOff(),
        ScheduleTask(tasks),
        ListScheduledTasks(tasks),
        SendMessage(Deliveries(store, signals)),
    ]
    if settings.shell.enabled:
        tools.append(ShellTool(shells))
    limits = settings.subagents
    if limits.depth > 0:
        delegate = Delegate(store=store, signals=signals, board=ground.board, limits=limits)
        tools += [SpawnSubagent(delegate), WaitSubagents(delegate)]
    return tools
