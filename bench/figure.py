"""A figure with what it is held against, and the table of all."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Figure:
    """One thing that was measured. Less is better in all of them."""

    name: str
    measured: float
    unit: str
    baseline: float | None
    """The same thing done in the plainest way, in the same run; None where there is none."""
    target: float
    judged: Literal["ratio", "added", "measured"] = "ratio"
    """What the target is about; `added` is what is more than the baseline."""

    @property
    def ratio(self) -> float | None:
        """How many times the baseline."""
        return self.measured / self.baseline if self.baseline else None

    @property
    def holds(self) -> bool:
        """Whether the target is reached."""
        if self.judged == "ratio":
            return self.ratio is not None and self.ratio <= self.target
        added_to = (self.baseline or 0.0) if self.judged == "added" else 0.0
        return self.measured - added_to <= self.target


HEADINGS = ("figure", "measured", "baseline", "ratio", "target", "")


def table(figures: Sequence[Figure]) -> str:
    """The figures in columns, under a line of headings."""
    rows = [HEADINGS, *map(_row, figures)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADINGS))]
    return "\n".join(_line(row, widths) for row in rows)


def _row(figure: Figure) -> tuple[str, ...]:
    ratio = figure.ratio
    return (
        figure.name,
        _value(figure.measured, figure),
        "-" if figure.baseline is None else _value(figure.baseline, figure),
        "-" if ratio is None else f"{ratio:.3g}",
        f"≤ {_target(figure)}",
        "ok" if figure.holds else "over",
    )


def _target(figure: Figure) -> str:
    if figure.judged == "ratio":
        return f"x {figure.target:.3g}"
    return ("+ " if figure.judged == "added" else "") + _value(figure.target, figure)


def _value(value: float, figure: Figure) -> str:
    digits = f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return f"{digits} {figure.unit}".rstrip()


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    first, *others = (
        text.ljust(width) if column == 0 else text.rjust(width)
        for column, (text, width) in enumerate(zip(row, widths, strict=True))
    )
    return "  ".join([first, *others]).rstrip()
