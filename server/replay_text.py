"""What a replay prints. No argument, no result and no word of a transcript is in it."""

from collections.abc import Iterable, Iterator, Sequence

from guard.policies import Ruling
from guard.rounds import Decision, RoundCall, StoredRound
from server.replay import Costs, Label, Replay, Tally, Trace

_COST_HEADS = (
    *("source", "policy", "traces", "reminded", "stopped"),
    *("rounds", "rounds saved", "tokens saved"),
)
_LABEL_HEADS = (
    *("policy", "loops", "stopped", "only reminded", "missed", "rounds saved", "tokens saved"),
    *("healthy", "stopped", "reminded", "rounds lost", "tokens lost"),
)


def trace_lines(
    trace: Trace, made: Sequence[Replay], label: Label | None, *, by_round: bool
) -> Iterator[str]:
    """What each policy would have done in *trace*, and how they differ."""
    rounds = trace.rounds
    words = [f"{len(rounds)} rounds", trace.model, *([label] if label else [])]
    yield f"{trace.id}: {', '.join(word for word in words if word)}"
    width = max((len(one.policy) for one in made), default=0)
    for one in made:
        yield f"  {one.policy:<{width}}  {_story(trace, one)}"
    if len({_course(one) for one in made}) > 1:
        yield f"  differ: {'; '.join(_difference(made))}"
    if by_round:
        yield from _round_lines(rounds, made, width)
    yield ""


def cost_lines(costs: Costs, *, has_labels: bool) -> Iterator[str]:
    """The tables over all traces."""
    rows = [(source, name, *_figures(tally)) for source, name, tally in costs.sources()]
    yield from _table(_COST_HEADS, rows)
    if has_labels:
        yield ""
        yield from _table(_LABEL_HEADS, [_label_row(*each) for each in costs.labelled()])


def _story(trace: Trace, made: Replay) -> str:
    parts = []
    if made.nudges:
        parts.append(f"reminds after {_listed(made.nudges)}")
    if made.stops:
        about = "≈" if trace.is_estimated else ""
        parts.append(
            f"stops after {_listed(made.stops)}: {made.saved_rounds} rounds, "
            f"{about}{made.saved_tokens} tokens not spent"
        )
    return "; ".join(parts) or "says nothing"


def _listed(decisions: Iterable[tuple[int, Decision]]) -> str:
    return ", ".join(f"{number} ({_named(decision)})" for number, decision in decisions)


def _named(decision: Decision) -> str:
    laps = f", {decision.laps} laps of {decision.period}" if decision.laps else ""
    return f"{decision.rule} {decision.streak}{laps}"


def _course(made: Replay) -> tuple[int, ...]:
    return tuple(number for number, _ in made.stops)


def _difference(made: Sequence[Replay]) -> Iterator[str]:
    together: dict[tuple[int, ...], list[str]] = {}
    for one in made:
        together.setdefault(_course(one), []).append(one.policy)
    for course, names in together.items():
        verb = f"stop after {', '.join(map(str, course))}" if course else "go on"
        yield f"{', '.join(names)} {verb}"


def _round_lines(
    rounds: Sequence[StoredRound], made: Sequence[Replay], width: int
) -> Iterator[str]:
    for number, each in enumerate(rounds, 1):
        calls = " ".join(
            f"{_shown(call.tool_name)}:{call.action_digest[:8]}={call.result_digest[:8]}"
            f"{_marks(call)}"
            for call in each.calls
        )
        yield f"  {number:>4}  {calls}"
        for one in made:
            said = _said(one.rulings[number - 1])
            if said:
                yield f"        {one.policy:<{width}}  {said}"


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


def _shown(name: str) -> str:
    """A tool's name fit for a terminal: models invent names."""
    return "".join(sign if sign.isprintable() else "?" for sign in name[:64])


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
