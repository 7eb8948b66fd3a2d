"""What a replay prints. No argument, no result and no word of a transcript is in it."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from guard.policies import Ruling
from guard.rounds import LOOP_CODE, Decision, RoundCall
from server.agent.acting import COMPLETED
from server.agent.record import CONTRACT_RULE, Standing
from server.replay import Costs, Label, Replay, Tally, Trace, TracedRun
from server.store.codec import to_json
from server.store.decisions import StateValue

_COST_HEADS = (
    *("source", "policy", "traces", "reminded", "stopped"),
    *("rounds", "rounds saved", "tokens saved"),
)
_LABEL_HEADS = (
    *("policy", "loops", "stopped", "only reminded", "missed", "rounds saved", "tokens saved"),
    *("healthy", "stopped", "reminded", "rounds lost", "tokens lost"),
)
_REASON_HEADS = ("policy", "stop reason", "traces", "stops")
MOST_CHARACTERS = 128
"""Of a name; ids of traces may be long, and so may what a model calls a tool."""

_CONTRACT = "contract"
"""Stands where policies' names do."""


def trace_lines(
    trace: Trace, made: Sequence[Replay], label: Label | None, *, by_round: bool
) -> Iterator[str]:
    """What each policy would have done in *trace*, and how they differ."""
    unfinished = f"{trace.unfinished} more lack a result" if trace.unfinished else ""
    words = [f"{len(trace.rounds)} rounds", unfinished, trace.model, label or ""]
    yield f"{shown(trace.id)}: {', '.join(shown(word) for word in words if word)}"
    width = max(len(name) for name in (_CONTRACT, *(one.policy for one in made)))
    for one in made:
        yield f"  {one.policy:<{width}}  {_story(trace, one)}"
    if len({_course(one) for one in made}) > 1:
        yield f"  differ: {'; '.join(_difference(made))}"
    if by_round:
        yield from _round_lines(trace, made, width)
    yield ""


def cost_lines(costs: Costs, *, has_labels: bool) -> Iterator[str]:
    """The tables over all traces."""
    rows = [(shown(source), name, *_figures(tally)) for source, name, tally in costs.sources()]
    yield from _table(_COST_HEADS, rows)
    reasons = [(*each[:2], *map(str, each[2:])) for each in costs.reasons()]
    if reasons:
        yield ""
        yield from _table(_REASON_HEADS, reasons)
    if has_labels:
        yield ""
        yield from _table(_LABEL_HEADS, [_label_row(*each) for each in costs.labelled()])


def _story(trace: Trace, made: Replay) -> str:
    parts = []
    if made.nudges:
        parts.append(f"reminds after {_listed(made.nudges)}")
    reached = [stop for stop in made.stops if stop[1].code == COMPLETED]
    stops = [stop for stop in made.stops if stop[1].code != COMPLETED]
    if reached:
        parts.append(f"completes after {', '.join(str(number) for number, _ in reached)}")
    if stops:
        parts.append(f"stops after {_listed(stops)}")
    if reached or stops:
        about = "≈" if trace.is_estimated else ""
        parts[-1] += f": {made.saved_rounds} rounds, {about}{made.saved_tokens} tokens not spent"
    return "; ".join(parts) or "says nothing"


def _listed(decisions: Iterable[tuple[int, Decision]]) -> str:
    return ", ".join(f"{number} ({_named(decision)})" for number, decision in decisions)


def _named(decision: Decision) -> str:
    """Rule, figures, and the reason of a stop that is not for a loop."""
    streak = f" {decision.streak}" if decision.streak else ""
    laps = f", {decision.laps} laps of {decision.period}" if decision.laps else ""
    is_told = decision.asks == "stop" and decision.code not in ("", LOOP_CODE)
    return f"{decision.rule}{streak}{laps}" + (f", {decision.code}" if is_told else "")


def _course(made: Replay) -> tuple[tuple[int, str], ...]:
    return tuple((number, stop.code) for number, stop in made.stops)


def _difference(made: Sequence[Replay]) -> Iterator[str]:
    together: dict[tuple[tuple[int, str], ...], list[str]] = {}
    for one in made:
        together.setdefault(_course(one), []).append(one.policy)
    for course, names in together.items():
        ends = (f"{n}" if code == LOOP_CODE else f"{n} ({code})" for n, code in course)
        verb = f"stop after {', '.join(ends)}" if course else "go on"
        yield f"{', '.join(names)} {verb}"


def _round_lines(trace: Trace, made: Sequence[Replay], width: int) -> Iterator[str]:
    run: TracedRun | None = None
    for index, each in enumerate(trace.rounds):
        if trace.runs and trace.runs[index] is not run:
            run = trace.runs[index]
            yield f"  {_run_line(run)}"
        calls = " ".join(
            f"{shown(call.tool_name)}:{call.action_digest[:8]}={call.result_digest[:8]}"
            f"{_marks(call)}"
            for call in each.calls
        )
        yield f"  {index + 1:>4}  {calls}"
        if run is not None and run.contract is not None:
            for state in _states(made, index):
                yield f"        {_CONTRACT:<{width}}  {state}"
        for one in made:
            said = _said(one.rulings[index])
            if said:
                yield f"        {one.policy:<{width}}  {said}"


def _run_line(run: TracedRun) -> str:
    contract = f"contract {run.contract_key}" if run.contract is not None else "no contract"
    return f"run {run.id or '–'}: {contract}, {run.outcome or 'under way'}"


def _states(made: Sequence[Replay], index: int) -> Iterator[str]:
    """Where the contract stands after the round, for the policies that played it.

    Policies differ once one of them has left out rounds.
    """
    together: dict[str, list[str]] = {}
    for one in made:
        standing = one.standings[index]
        if standing is not None:
            together.setdefault(_state(standing), []).append(one.policy)
    for state, names in together.items():
        yield state if len(together) == 1 else f"{', '.join(names)}: {state}"


def _state(standing: Standing) -> str:
    idle = standing.streaks.get(CONTRACT_RULE, 0)
    words = [
        f"state {standing.state_version}",
        *([f"{idle} without progress"] if idle else []),
        *_changes(standing.state_diff),
    ]
    return ", ".join(words)


def _changes(diff: Mapping[str, Sequence[StateValue]]) -> Iterator[str]:
    for name, (before, after) in diff.items():
        yield f"{shown(name)} {_value(before)} → {_value(after)}"


def _value(value: StateValue) -> str:
    """A value of the state; a text is there by its digest."""
    if value is None:
        return "–"
    return f"#{value}" if isinstance(value, str) else to_json(value)


def _marks(call: RoundCall) -> str:
    marks = {"exempt": call.exempt, "waits": call.waits, "failed": call.error_class is not None}
    found = [mark for mark, holds in marks.items() if holds]
    return f"[{','.join(found)}]" if found else ""


def _said(ruling: Ruling | None) -> str:
    if ruling is None:
        return "not played"
    return ", ".join(
        f"{found.given if found.given != 'none' else 'would ' + found.decision.asks} "
        f"{_named(found.decision)}"
        for found in ruling.findings
    )


def shown(name: str) -> str:
    """A name fit for a terminal: models invent those of tools, and files may say anything."""
    return "".join(sign if sign.isprintable() else "?" for sign in name[:MOST_CHARACTERS])


def _figures(tally: Tally) -> tuple[str, ...]:
    figures = (tally.traces, tally.reminded, tally.stopped, tally.rounds)
    return (*map(str, figures), str(tally.saved_rounds), str(tally.saved_tokens))


def _label_row(name: str, loops: Tally, healthy: Tally) -> tuple[str, ...]:
    missed = loops.traces - loops.stopped - loops.reminded_only
    of_loops = (loops.traces, loops.stopped, loops.reminded_only, missed)
    saved = (loops.saved_rounds, loops.saved_tokens)
    lost = (healthy.saved_rounds, healthy.saved_tokens)
    of_healthy = (healthy.traces, healthy.stopped, healthy.reminded)
    return (name, *map(str, (*of_loops, *saved, *of_healthy, *lost)))


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    for row in (heads, *rows):
        cells = [
            cell.ljust(width) if place == 0 or not _is_figure(rows, place) else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield "  ".join(cells).rstrip()


def _is_figure(rows: Sequence[Sequence[str]], place: int) -> bool:
    return all(row[place].isdigit() for row in rows)
