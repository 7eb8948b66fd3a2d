"""Scripted cases from public reports, played live, after restarts, and from the texts alone.

`cases.json` is a list; a case of the same kinds is added by appending it. A script holds rounds
(`{"n": 3, "round": [call, …]}`), rounds in turn (`{"n": 6, "cycle": [round, round]}`) and events
(`{"ev": "restart"}`). A call is `[tool, arguments, result, picture?]`, where a string is the text
itself and any other value stands for its JSON. `{{i}}` is the number of the round in the case,
`{{j}}` in its segment, and a string that is only `{{#i+1}}` becomes that integer.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from guard import (
    RULES,
    Abort,
    Attachment,
    Message,
    NoProgressCall,
    NoProgressGuard,
    NoProgressNotice,
    NoProgressTail,
    Nudge,
    Rules,
    ToolContract,
    apply_no_progress_notices,
    drop_fields,
    pin_notice,
    scan_no_progress_notices,
)
from tests.guard.history import History

CASES: dict[str, dict[str, Any]] = {
    case["id"]: case
    for case in json.loads(Path(__file__).with_name("cases.json").read_text(encoding="utf-8"))
}

REGISTERED: Mapping[str, Rules] = {
    "G28": Rules(
        contracts={"message": ToolContract(result=drop_fields("messageId", "runId", "receipt"))}
    ),
    "G48": Rules(exempt_calls=(lambda call: call.tool_name == "view_background_agent",)),
}
"""Rules with which the case has the verdict of its `alt`."""

RECURRING_IDS = {"G94"}
"""Cases whose provider begins its ids anew with every reply."""


@dataclass
class Trace:
    """What a case came to; rounds are numbered over the whole script."""

    streak: int = 0
    nudge: list[int] = field(default_factory=list)
    abort: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Mode:
    """How a case is played."""

    restarts_always: bool = False
    stores_evidence: bool = True
    carries_tail: bool = False


MODES = {
    "live": Mode(),
    "restarted": Mode(restarts_always=True),
    "from texts": Mode(restarts_always=True, stores_evidence=False),
}


@dataclass
class Player:
    """Plays a script as a run would: store, guard, notices."""

    history: History
    mode: Mode
    rules: Rules
    trace: Trace = field(default_factory=Trace)
    notices: list[NoProgressNotice] = field(default_factory=list)
    carried: NoProgressTail | None = None
    is_over: bool = False
    number: int = 0

    def __post_init__(self) -> None:
        self.guard = NoProgressGuard(rules=self.rules)
        self.history.add_user("do it", synthetic=False)

    def play(self, script: Sequence[Mapping[str, Any]]) -> Trace:
        for segment in script:
            if "ev" in segment:
                EVENTS[segment["ev"]](self, segment)
                continue
            for round_ in expand(segment, self.number):
                self.number += 1
                if not self.is_over:
                    self.play_round(round_)
        self.trace.streak = self.guard.streak
        return self.trace

    def play_round(self, calls: Sequence[NoProgressCall]) -> None:
        if self.mode.restarts_always:
            self.reload()
        anchor = self.history.add_round(*calls)
        for call in calls:
            self.guard.observe_call(call)
        self.guard.end_round(anchor)
        match self.guard.take_action():
            case Nudge() as nudge:
                self.trace.nudge.append(self.number)
                self.notices.append(pin_notice(nudge, self.history.messages))
            case Abort():
                self.trace.abort.append(self.number)
                self.is_over = True
            case None:
                pass
        self.check_replay()

    def check_replay(self) -> None:
        """Whatever happened so far, the store says the same as the live guard."""
        result = self.scan()
        messages = self.history.messages
        assert result.tail == self.guard.tail
        assert apply_no_progress_notices(messages, result.notices) == apply_no_progress_notices(
            messages, self.notices
        )

    def scan(self) -> Any:
        return scan_no_progress_notices(
            self.history.messages, self.history.attachments, self.carried, self.rules
        )

    def reload(self) -> None:
        result = self.scan()
        self.guard = NoProgressGuard(result.tail, self.rules)
        self.notices = list(result.notices)

    # Events.

    def on_user(self, event: Mapping[str, Any]) -> None:
        self.history.add_user(event.get("text", "go on"), synthetic=False)
        self.guard.reset_from(None)
        self.is_over = False

    def on_synthetic_user(self, event: Mapping[str, Any]) -> None:
        self.history.add_user(event.get("text", "a note"), synthetic=True)

    def on_restart(self, event: Mapping[str, Any]) -> None:
        self.reload()

    def on_resume(self, event: Mapping[str, Any]) -> None:
        self.reload()
        self.is_over = False

    def on_compact(self, event: Mapping[str, Any]) -> None:
        messages = self.history.messages
        first = first_kept(messages, event["keep"])
        if self.mode.carries_tail:
            self.carried = scan_no_progress_notices(
                messages[:first], self.history.attachments, self.carried, self.rules
            ).tail
        summary: Message = {"role": "user", "content": "what happened", "synthetic": True}
        self.history.messages[:] = [summary, *messages[first:]]
        self.reload()

    def on_rewrite(self, event: Mapping[str, Any]) -> None:
        text = event.get("text", "[cleared]")
        self.history.messages[:] = [
            {**message, "content": text} if message["role"] == "tool" else message
            for message in self.history.messages
        ]

    def on_unfinished(self, event: Mapping[str, Any]) -> None:
        """Some calls have no result: cancelled, so the live guard is not told of the round."""
        if self.is_over:
            return
        specs = event.get("calls", [["grep", {"q": "x"}]])
        calls = [decode_call([*spec, ""][:3]) for spec in specs]
        ids = self.history.add_calls(calls)
        for id_, call, spec in zip(ids, calls, specs, strict=True):
            if len(spec) > 2:
                self.history.add_result(id_, call)

    def on_nothing(self, event: Mapping[str, Any]) -> None:
        """An empty reply, or one that broke off: it leaves nothing behind."""


EVENTS: Mapping[str, Callable[[Player, Mapping[str, Any]], None]] = {
    "user": Player.on_user,
    "synthetic_user": Player.on_synthetic_user,
    "restart": Player.on_restart,
    "resume": Player.on_resume,
    "compact": Player.on_compact,
    "rewrite": Player.on_rewrite,
    "orphan": Player.on_unfinished,
    "partial": Player.on_unfinished,
    "discarded_attempt": Player.on_nothing,
    "empty": Player.on_nothing,
}


def first_kept(messages: Sequence[Message], keep: int) -> int:
    """Where the last *keep* rounds begin."""
    heads = [index for index, message in enumerate(messages) if "tool_calls" in message]
    return heads[-keep] if 0 < keep <= len(heads) else (0 if keep else len(messages))


def expand(segment: Mapping[str, Any], before: int) -> Iterator[list[NoProgressCall]]:
    turns = segment["cycle"] if "cycle" in segment else [segment["round"]]
    for j in range(1, segment["n"] + 1):
        numbers = {"i": before + j, "j": j}
        yield [decode_call(fill(call, numbers)) for call in turns[(j - 1) % len(turns)]]


def fill(value: Any, numbers: Mapping[str, int]) -> Any:
    """The value with its `{{…}}` filled in."""
    if isinstance(value, dict):
        return {fill(key, numbers): fill(item, numbers) for key, item in value.items()}
    if isinstance(value, list):
        return [fill(item, numbers) for item in value]
    if not isinstance(value, str):
        return value
    whole = re.fullmatch(r"\{\{#([ij])(?:([-+*%])(\d+))?\}\}", value)
    if whole is not None:
        name, sign, operand = whole.groups(default="")
        return calculate(numbers[name], sign, int(operand or 0))
    return re.sub(r"\{\{([ij])\}\}", lambda found: str(numbers[found[1]]), value)


def calculate(left: int, sign: str, right: int) -> int:
    match sign:
        case "-":
            return left - right
        case "*":
            return left * right
        case "%":
            return left % right
        case _:
            return left + right


def decode_call(spec: Sequence[Any]) -> NoProgressCall:
    tool, arguments, result, *picture = spec
    attachment = Attachment(picture[0], "image/png") if picture else None
    return NoProgressCall(tool, text_of(arguments), text_of(result), attachment)


def text_of(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))


def play(id_: str, mode: Mode, rules: Rules = RULES) -> Trace:
    history = History(mode.stores_evidence, id_ in RECURRING_IDS, rules)
    return Player(history, mode, rules).play(CASES[id_]["script"])


def has_event(id_: str, name: str) -> bool:
    return any(segment.get("ev") == name for segment in CASES[id_]["script"])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("id_", CASES)
def test_a_reported_case_has_its_verdict(id_: str, mode: str) -> None:
    if mode == "from texts" and has_event(id_, "rewrite"):
        pytest.skip("what was rewritten is known by its stored evidence only")
    assert play(id_, MODES[mode]) == Trace(**CASES[id_]["expect"]["P0"])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("id_", REGISTERED)
def test_a_registered_rule_gives_the_other_verdict(id_: str, mode: str) -> None:
    assert play(id_, MODES[mode], REGISTERED[id_]) == Trace(**CASES[id_]["alt"]["P0"])


@pytest.mark.parametrize("id_", [id_ for id_ in CASES if has_event(id_, "compact")])
def test_a_carried_tail_makes_a_compaction_invisible(id_: str) -> None:
    expected = Trace(**CASES[id_]["alt"]["carry (recommended)"])
    assert play(id_, Mode(carries_tail=True)) == expected
    assert play(id_, Mode(carries_tail=True, restarts_always=True)) == expected


def cut_result(call_number: int, middle: str, names_its_hash: bool) -> str:
    whole = f"Hello {middle}"
    name = f"sha256 {hash_of(whole)}" if names_its_hash else f"saved to artifacts/{call_number}.txt"
    return f"Hello …[cut: 91 KB, {name}]"


def hash_of(text: str) -> str:
    return text.encode().hex()


@pytest.mark.parametrize(
    ("names_its_hash", "middles", "streak"),
    [(True, "aaaaa", 5), (True, "abcde", 1), (False, "aaaaa", 1)],
    ids=["same output", "changed middle", "file per call"],
)
def test_a_cut_that_names_the_hash_of_the_whole_tells_progress_from_repetition(
    names_its_hash: bool, middles: str, streak: int
) -> None:
    guard = NoProgressGuard()
    for number, middle in enumerate(middles):
        text = cut_result(number, middle, names_its_hash)
        guard.observe_call(NoProgressCall("web_fetch", "{}", text))
        guard.end_round(f"call_{number}")
    assert guard.streak == streak


EVENT_SCRIPTS: Mapping[str, tuple[str, list[dict[str, Any]]]] = {
    "synthetic user": ("counts on", [{"ev": "synthetic_user", "text": "a picture"}]),
    "rewrite": ("counts on", [{"ev": "rewrite"}]),
    "rewrite and restart": ("counts on", [{"ev": "rewrite"}, {"ev": "restart"}]),
    "orphan": ("counts on", [{"ev": "orphan", "calls": [["grep", {"q": "x"}]]}]),
    "discarded attempt": ("counts on", [{"ev": "discarded_attempt"}]),
    "empty": ("counts on", [{"ev": "empty"}]),
    "restart": ("counts on", [{"ev": "restart"}]),
    "compact that keeps all": ("counts on", [{"ev": "compact", "keep": 4}]),
    "compact that keeps nothing": ("starts over", [{"ev": "compact", "keep": 0}]),
    "user": ("starts over", [{"ev": "user", "text": "go on"}]),
}


@pytest.mark.parametrize("name", EVENT_SCRIPTS)
@pytest.mark.parametrize("restarts_always", [False, True])
def test_an_event_between_equal_rounds(name: str, restarts_always: bool) -> None:
    effect, events = EVENT_SCRIPTS[name]
    rounds = {"n": 4, "round": [["grep", {"q": "x"}, "0 matches"]]}
    mode = Mode(restarts_always=restarts_always)
    trace = Player(History(stores_evidence=True), mode, RULES).play([rounds, *events, rounds])
    assert trace == (Trace(8, [5]) if effect == "counts on" else Trace(4))
