"""`headway replay`: policies over transcripts and stored sessions, on the command line."""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from guard import Rules
from guard.policies import POLICIES, Policy
from server.agent.policies import prices_of
from server.errors import BadRequest, NotFound
from server.replay import Costs, Label, Trace, replay
from server.replay_read import read_labels, read_session, read_traces, trace_files
from server.replay_text import cost_lines, trace_lines
from server.settings import Settings
from server.store.engine import open_store
from server.tools.mcp import contracts_of

LABELS_NAME = "labels.json"
"""Looked for beside the transcripts."""


def add_replay(cli: typer.Typer, load: Callable[[], Settings]) -> None:
    """Add the command to *cli*; *load* is asked for the settings when it needs the database."""

    @cli.command("replay")
    def run(
        target: Annotated[
            str, typer.Argument(help="A transcript, a folder of them, or a session's id.")
        ],
        policy: Annotated[
            list[str] | None,
            typer.Option(
                help="By name, more than once; those of the settings too. Default: all that ship."
            ),
        ] = None,
        labels: Annotated[
            Path | None, typer.Option(help="JSON; default: labels.json beside the transcripts.")
        ] = None,
        rounds: Annotated[bool, typer.Option("--rounds", help="Show every round.")] = False,
        summary: Annotated[bool, typer.Option("--summary", help="Only the tables.")] = False,
    ) -> None:
        """Show where policies would have reminded the model or stopped a run, and the cost."""
        try:
            known = _labels(Path(target), labels)
            for line in _lines(load, target, _policies(load, policy), known, rounds, summary):
                typer.echo(line)
        except (BadRequest, NotFound) as error:
            typer.echo(f"✗ {error}", err=True)
            raise typer.Exit(1) from None


def _lines(
    load: Callable[[], Settings],
    target: str,
    policies: Sequence[Policy],
    labels: Mapping[str, Label],
    by_round: bool,
    is_summary: bool,
) -> Iterator[str]:
    """Trace by trace, then the tables; a trace in which no policy speaks is in the tables only."""
    costs = Costs(policies, labels)
    for trace in _traces(load, target):
        made = [replay(policy, trace) for policy in policies]
        costs.add(trace, made)
        speaks = by_round or not Path(target).exists() or any(one.has_spoken for one in made)
        if speaks and not is_summary:
            yield from trace_lines(trace, made, labels.get(trace.id), by_round=by_round)
    yield from cost_lines(costs, has_labels=bool(labels))


def _policies(load: Callable[[], Settings], names: list[str] | None) -> list[Policy]:
    """Those of these names; the settings are read where one is not among those that ship."""
    known = POLICIES
    if any(name not in POLICIES for name in names or ()):
        known = load().policy.policies
    unknown = [name for name in names or () if name not in known]
    if unknown:
        raise BadRequest(f"there is no policy {unknown[0]}; known are {', '.join(known)}")
    return [known[name] for name in dict.fromkeys(names or POLICIES)]


def _labels(target: Path, given: Path | None) -> Mapping[str, Label]:
    if given is not None:
        return read_labels(given)
    beside = (target if target.is_dir() else target.parent) / LABELS_NAME
    return read_labels(beside) if target.exists() and beside.is_file() else {}


def _traces(load: Callable[[], Settings], target: str) -> Iterator[Trace]:
    path = Path(target)
    if path.exists():
        for file in trace_files(path):
            yield from read_traces(file)
    else:
        yield asyncio.run(_session(load(), target))


async def _session(settings: Settings, session_id: str) -> Trace:
    rules = Rules(contracts=contracts_of(settings.mcp))
    prices = prices_of(settings.policy.prices)
    async with open_store(settings.database_url.get_secret_value()) as store:
        return await read_session(store, session_id, rules, prices)
