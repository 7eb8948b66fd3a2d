"""Recorded runs as traces: transcripts in the format `agent-trace/1`, and stored sessions."""

import gzip
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, get_args

from guard import Rules
from guard.policy import RULES
from guard.rounds import StoredRound, Turn, stored_events
from server.agent.judge import NO_PRICES, Prices, as_chat
from server.contract import parse_contract
from server.errors import BadRequest
from server.message import Message
from server.replay import Label, Trace, TracedRun
from server.store.engine import Store
from server.store.messages import load_from
from server.store.runs import Run, load_run
from server.store.sessions import Session, load_session

FORMAT: Final = "agent-trace/1"

_SHAPE: Final = (
    f'one JSON object a line, first the header with "format": "{FORMAT}" and its "trace_id", '
    'then its messages with their "role"'
)

_NO_RUN: Final = TracedRun("", None, "")
"""Of messages that no run wrote."""

CHARACTERS_PER_TOKEN: Final = 4
"""A rule of thumb, for transcripts that do not tell their tokens."""


def trace_files(path: Path) -> list[Path]:
    """The transcripts at *path*: the file itself, or those of the folder by their names.

    Raises:
        BadRequest: There are none, or the folder cannot be read.
    """
    if not path.is_dir():
        return [path]
    try:
        found = sorted(file for file in path.iterdir() if _stem(file) is not None)
    except OSError as error:
        raise BadRequest(f"{path.name or path}: cannot be read ({error.strerror})") from None
    if not found:
        raise BadRequest(
            f"{path.name or path}: no .jsonl and no .jsonl.gz in this folder; "
            "name the folder that has the transcripts, those in folders below are not looked for"
        )
    return found


def read_traces(file: Path) -> Iterator[Trace]:
    """The traces of a file in their order. A line that does not belong ends it.

    A trace is held in memory as a whole, one at a time.

    Raises:
        BadRequest: The file has none, or a line is not what the format says; with its number.
    """
    header: Mapping[str, Any] | None = None
    messages: list[Mapping[str, Any]] = []
    source = _stem(file) or file.name
    for number, line in _lines(file):
        value = _decoded(line)
        if value is None or (header is None and "role" in value):
            raise BadRequest(f"{file.name}, line {number}: not {FORMAT}, which is {_SHAPE}")
        if "role" in value:
            messages.append(value)
            continue
        if value.get("format") != FORMAT or not isinstance(value.get("trace_id"), str):
            raise BadRequest(
                f"{file.name}, line {number}: not the header of an {FORMAT}, which is {_SHAPE}"
            )
        if header is not None:
            yield _trace(header, source, messages)
        header, messages = value, []
    if header is None:
        raise BadRequest(f"{file.name}: is empty; a transcript is {_SHAPE}")
    yield _trace(header, source, messages)


def read_labels(file: Path) -> dict[str, Label]:
    """Label by trace, from a JSON list of objects with `trace_id` and `label`.

    Raises:
        BadRequest: The file is not that.
    """
    try:
        entries = json.loads(file.read_bytes())
        labels = {entry["trace_id"]: entry["label"] for entry in entries}
    except OSError as error:
        raise BadRequest(f"{file.name}: cannot be read ({error.strerror})") from None
    except (ValueError, TypeError, KeyError, RecursionError):
        raise BadRequest(
            f'{file.name}: no labels; a JSON list of {{"trace_id": …, "label": …}} is needed'
        ) from None
    if set(map(str, labels.values())) - set(get_args(Label)):
        raise BadRequest(f"{file.name}: a label is one of {', '.join(get_args(Label))}")
    return labels


async def read_session(
    store: Store, session_id: str, rules: Rules = RULES, prices: Prices = NO_PRICES
) -> Trace:
    """The session as it is shown, compacted parts included, with the contract of each run.

    What was superseded is left out, and so is what a side question inherited: those rounds are
    its parent's.

    Args:
        rules: What tools say of their calls, as for the session's runs.
    Raises:
        NotFound: There is no such session.
        BadRequest: The contract of a run is one that this version cannot read.
    """
    async with store.read() as db:
        session = await load_session(db, session_id)
        messages = await load_from(db, session_id, session.inherited_seq + 1)
        closing = dict.fromkeys(m.run_id for m in messages if m.role == "tool")
        runs = [await load_run(db, run_id) for run_id in closing if run_id is not None]
    return session_trace(session, messages, runs, rules, prices)


def session_trace(
    session: Session,
    messages: Sequence[Message],
    runs: Iterable[Run],
    rules: Rules = RULES,
    prices: Prices = NO_PRICES,
) -> Trace:
    """The trace of a session with these messages, of whose rounds these *runs* closed some.

    Raises:
        BadRequest: As `read_session`.
    """
    by_id = {run.id: _traced(run) for run in runs}

    def run_of(message: Message) -> TracedRun:
        return by_id.get(message.run_id or "", _NO_RUN)

    closed_by = {m.tool_call_id: run_of(m) for m in messages if m.role == "tool"}
    chats = [as_chat(message, prices, run_of(message).contract_key) for message in messages]
    events = tuple(stored_events(chats, rules=rules))
    rounds = [event for event in events if isinstance(event, StoredRound)]
    return Trace(
        session.id,
        "session",
        session.model or "default",
        events,
        runs=tuple(closed_by[stored.anchor] for stored in rounds),
        unfinished=_unfinished(chats, events),
        is_session=True,
    )


def _traced(run: Run) -> TracedRun:
    given = run.input.contract if run.input is not None else None
    try:
        contract = parse_contract(given) if given is not None else None
    except BadRequest as error:
        raise BadRequest(f"run {run.id} has a {error.path} that {error}") from None
    return TracedRun(run.id, contract, run.outcome_code or "")


def _trace(header: Mapping[str, Any], source: str, messages: list[Mapping[str, Any]]) -> Trace:
    model = header.get("model")
    events = tuple(stored_events(_priced(messages)))
    return Trace(
        header["trace_id"],
        source,
        model if isinstance(model, str) else "",
        events,
        is_estimated=any("usage" not in m for m in messages if m.get("role") == "assistant"),
        unfinished=_unfinished(messages, events),
    )


def _unfinished(chats: Iterable[Mapping[str, Any]], events: Sequence[StoredRound | Turn]) -> int:
    """Rounds of which *events* have nothing, since a result is missing."""
    begun = [c for c in chats if c.get("role") == "assistant" and c.get("tool_calls")]
    return len(begun) - sum(isinstance(event, StoredRound) for event in events)


def _priced(messages: list[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """The messages; replies that do not tell their tokens get an estimate."""
    characters = 0
    for message in messages:
        size = len(str(message.get("content") or "")) + sum(
            len(str(call.get("function"))) for call in _calls(message)
        )
        if message.get("role") == "assistant" and "usage" not in message:
            usage = {
                "prompt_tokens": characters // CHARACTERS_PER_TOKEN,
                "completion_tokens": size // CHARACTERS_PER_TOKEN,
            }
            yield {**message, "usage": usage}
        else:
            yield {"synthetic": False, **message} if message.get("role") == "user" else message
        characters += size


def _calls(message: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    calls = message.get("tool_calls")
    if not isinstance(calls, list):
        return []
    return [call for call in calls if isinstance(call, dict)]


def _decoded(line: str) -> dict[str, Any] | None:
    if not line.lstrip().startswith("{"):
        return None  # what else it is may be large
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _lines(file: Path) -> Iterator[tuple[int, str]]:
    """The lines that are not empty, by their numbers from 1.

    Raises:
        BadRequest: The file cannot be read to its end, and why.
    """
    opened = gzip.open if file.name.endswith(".gz") else open
    try:
        with opened(file, "rt", encoding="utf-8-sig") as lines:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    yield number, line
    except (gzip.BadGzipFile, EOFError, zlib.error):
        reason = "is no whole gzip file; get it anew, or take .gz from its name if it is not packed"
    except UnicodeDecodeError:
        reason = "is not UTF-8 text; add .gz to its name if it is packed"
    except OSError as error:
        reason = f"cannot be read ({error.strerror})"
    else:
        return
    raise BadRequest(f"{file.name}: {reason}")


def _stem(file: Path) -> str | None:
    """The name without its ending; None for what is no transcript."""
    for ending in (".jsonl.gz", ".jsonl"):
        if file.name.endswith(ending):
            return file.name.removesuffix(ending)
    return None
