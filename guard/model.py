"""The guard's own vocabulary: frozen values, no behaviour."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

Locale = Literal["zh-CN", "en"]
"""Language of the texts; the model and the user see the same one for a whole session."""

Message = Mapping[str, object]
"""One chat message in OpenAI shape (role, content, tool_calls, tool_call_id), with our marks."""


@dataclass(frozen=True, slots=True)
class Attachment:
    """A picture that a tool result refers to and that is kept beside the text."""

    data_uri: str = field(repr=False)
    media_type: str


@dataclass(frozen=True, slots=True)
class NoProgressCall:
    """One tool use with what the model was shown for it."""

    tool_name: str
    arguments_json: str = field(repr=False)
    """As the provider sent it; not necessarily JSON."""
    result_content: str = field(repr=False)
    attachment: Attachment | None = None
    result_digest: str | None = None
    """Stored evidence. When present it is believed, whatever became of the content since."""
    exempt: bool | None = None
    """Stored evidence, as above."""


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Rounds in a row with the same calls and results at which something happens."""

    nudge_at: tuple[int, ...]
    """The model is reminded; ascending."""
    abort_at: int | None = None
    """The run ends; None is never."""

    def __post_init__(self) -> None:
        end = () if self.abort_at is None else (self.abort_at,)
        steps = (0, *self.nudge_at, *end)
        if any(before >= after for before, after in zip(steps, steps[1:], strict=False)):
            raise ValueError("thresholds are positive and ascend, the end behind all reminders")


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that a rule needs to know of one call, computed once, when its result is born."""

    action_digest: str
    """16 hexadecimal digits over tool and canonical arguments."""
    result_digest: str
    """16 hexadecimal digits over the normalised result."""
    exempt: bool
    faults: tuple[str, ...] = ()
    """Rules that raised and were replaced by the text rule; names only, no contents."""
    thresholds: Thresholds | None = None
    """The tool's own, where it has any."""


@dataclass(frozen=True, slots=True)
class NoProgressTail:
    """Where a streak stands after a round; there is no tail at streak 0."""

    streak: int
    """Rounds in a row with the same key. It counts its own round: the first sighting is 1."""
    last_round_key: str
    nudged_at: tuple[int, ...]
    """Streaks at which this streak has been reminded already."""


@dataclass(frozen=True, slots=True)
class NoProgressNotice:
    """A reminder and the tool message behind which a request shows it. Never stored."""

    after_tool_call_id: str
    text: str
    occurrence: int = 0
    """Which tool message with that id, from 0: some providers use their ids again and again."""


@dataclass(frozen=True, slots=True)
class NoProgressScanResult:
    """What a stored history says: the reminders in it and where its last streak stands."""

    notices: tuple[NoProgressNotice, ...]
    tail: NoProgressTail | None
    tool_names: tuple[str, ...] = ()
    """Tools of the last counted round, each once; for the text of a run that ends on its tail."""
    faults: tuple[str, ...] = ()
    """As in `Evidence`; each once."""


class Verdict(StrEnum):
    """What a rule makes of a round."""

    CONTINUE = "continue"
    NUDGE = "nudge"
    ABORT = "abort"


@dataclass(frozen=True, slots=True)
class Nudge:
    """Remind the model: show *text* behind the last result of the round."""

    after_tool_call_id: str
    text: str


@dataclass(frozen=True, slots=True)
class Abort:
    """End the run."""
