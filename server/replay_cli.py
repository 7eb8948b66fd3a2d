"""`headway replay`: policies over transcripts and stored sessions, on the command line."""

import asyncio
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import Annotated

import typer

from guard import Rules
from guard.policies import POLICIES, Policy
from server.agent.policies import prices_of
from server.errors import BadRequest, NotFound, StoreUnavailable
from server.message import clean_text
from server.replay import Costs, Label, Trace, replay
from server.replay_read import read_labels, read_session, read_traces, trace_files
from server.replay_text import cost_lines, shown, trace_lines
from server.settings import Settings
from server.store.engine import open_store
from server.tools.mcp import contracts_of

LABELS_NAME = "labels.json"
"""Looked for beside the transcripts."""

MOST_NAMED = 5
"""Labels without a trace that are named; of more the number is told."""


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
            known = _labels(target, labels)
            seen: set[str] = set()
            for line in _lines(
                _traces(load, target), _policies(load, policy), known, seen, rounds, summary
            ):
                typer.echo(line)
        except (BadRequest, NotFound) as error:
            typer.echo(f"✗ {error}", err=True)
            raise typer.Exit(1) from None
        if labels is not None or os.path.isdir(target):
            _tell_unknown(known, seen)


def _lines(
    traces: Iterable[Trace],
    policies: Sequence[Policy],
    labels: Mapping[str, Label],
    seen: set[str],
    by_round: bool,
    is_summary: bool,
) -> Iterator[str]:
    """Trace by trace, then the tables; a transcript in which no policy speaks is in these only.

    Args:
        seen: Gets the ids of all traces.
    """
    costs = Costs(policies, labels)
    for trace in traces:
        seen.add(trace.id)
        made = [replay(policy, trace) for policy in policies]
        costs.add(trace, made)
        speaks = by_round or trace.is_session or any(one.has_spoken for one in made)
        if speaks and not is_summary:
            yield from trace_lines(trace, made, labels.get(trace.id), by_round=by_round)
    yield from cost_lines(costs, has_labels=bool(labels))


def _tell_unknown(labels: Mapping[str, Label], seen: Set[str]) -> None:
    """Say which labels were of no use: a mistyped id would be missing from the costs unseen."""
    unknown = [shown(trace_id) for trace_id in labels if trace_id not in seen]
    if unknown:
        named = ", ".join(unknown[:MOST_NAMED]) + (", …" if len(unknown) > MOST_NAMED else "")
        typer.echo(f"! {len(unknown)} labels name no trace that was read: {named}", err=True)


def _policies(load: Callable[[], Settings], names: list[str] | None) -> list[Policy]:
    """Those of these names; the settings are read where one is not among those that ship."""
    known = POLICIES
    if any(name not in POLICIES for name in names or ()):
        known = load().policy.policies
    unknown = [name for name in names or () if name not in known]
    if unknown:
        raise BadRequest(f"there is no policy {unknown[0]}; known are {', '.join(known)}")
    return [known[name] for name in dict.fromkeys(names or POLICIES)]


def _labels(target: str, given: Path | None) -> Mapping[str, Label]:
    if given is not None:
        return read_labels(given)
    if not os.path.exists(target):  # `Path.exists` raises for what is too long for a name
        return {}
    path = Path(target)
    beside = (path if path.is_dir() else path.parent) / LABELS_NAME
    return read_labels(beside) if beside.is_file() else {}


def _traces(load: Callable[[], Settings], target: str) -> Iterator[Trace]:
    if os.path.exists(target):
        for file in trace_files(Path(target)):
            yield from read_traces(file)
    elif os.sep in target or target.endswith((".jsonl", ".jsonl.gz")):
        raise NotFound(f"there is no file or folder {target}")
    else:
        yield asyncio.run(_session(load(), target))


async def _session(settings: Settings, session_id: str) -> Trace:
    rules = Rules(contracts=contracts_of(settings.mcp))
    prices = prices_of(settings.policy.prices)
    try:
        async with open_store(settings.database_url.get_secret_value()) as store:
            return await read_session(store, clean_text(session_id), rules, prices)
    except NotFound:
        raise NotFound(
            f"there is no file, no folder and no session {session_id}; "
            "GET /api/sessions lists the sessions and their ids"
        ) from None
    except StoreUnavailable as error:
        raise StoreUnavailable(
            f"there is no file or folder {session_id}, and sessions cannot be read: {error}"
        ) from None
