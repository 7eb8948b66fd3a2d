"""Recorded runs as traces: transcripts in the format `agent-trace/1`, and stored sessions."""

import gzip
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, get_args

from guard import Rules
from guard.policy import RULES
from guard.rounds import stored_events
from server.agent.judge import NO_PRICES, Prices, as_chat
from server.errors import BadRequest
from server.replay import Label, Trace
from server.store.engine import Store
from server.store.messages import load_from
from server.store.sessions import load_session

FORMAT: Final = "agent-trace/1"

CHARACTERS_PER_TOKEN: Final = 4
"""A rule of thumb, for transcripts that do not tell their tokens."""


def trace_files(path: Path) -> list[Path]:
    """The transcripts at *path*: the file itself, or those of the folder by their names.

    Raises:
        BadRequest: There are none.
    """
    if not path.is_dir():
        return [path]
    found = sorted(file for file in path.iterdir() if _stem(file) is not None)
    if not found:
        raise BadRequest(f"{path.name}: no .jsonl and no .jsonl.gz in this folder")
    return found


def read_traces(file: Path) -> Iterator[Trace]:
    """The traces of a file in their order. A line that does not belong ends it.

    Raises:
        BadRequest: A line is not what the format says; with the line's number.
    """
    header: Mapping[str, Any] | None = None
    messages: list[Mapping[str, Any]] = []
    source = _stem(file) or file.name
    for number, line in _lines(file):
        value = _decoded(line)
        if value is None or (header is None and "trace_id" not in value):
            raise BadRequest(f"{file.name}, line {number}: not {FORMAT}")
        if "role" in value:
            messages.append(value)
            continue
        if value.get("format") != FORMAT or not isinstance(value.get("trace_id"), str):
            raise BadRequest(f"{file.name}, line {number}: not the header of an {FORMAT}")
        if header is not None:
            yield _trace(header, source, messages)
        header, messages = value, []
    if header is not None:
        yield _trace(header, source, messages)


def read_labels(file: Path) -> dict[str, Label]:
    """Label by trace, from a JSON list of objects with `trace_id` and `label`.

    Raises:
        BadRequest: The file is not that.
    """
    try:
        entries = json.loads(file.read_bytes())
        labels = {entry["trace_id"]: entry["label"] for entry in entries}
    except (OSError, ValueError, TypeError, KeyError):
        raise BadRequest(f"{file.name}: no list of traces and labels") from None
    wrong = set(map(str, labels.values())) - set(get_args(Label))
    if wrong:
        raise BadRequest(f"{file.name}: a label is one of {', '.join(get_args(Label))}")
    return labels


async def read_session(
    store: Store, session_id: str, rules: Rules = RULES, prices: Prices = NO_PRICES
) -> Trace:
    """The session as it is shown, compacted parts included; what was superseded is left out.

    Args:
        rules: What tools say of their calls, as for the session's runs.
    Raises:
        NotFound: There is no such session.
    """
    async with store.read() as db:
        session = await load_session(db, session_id)
        messages = await load_from(db, session_id, 0)
    events = stored_events((as_chat(message, prices) for message in messages), rules=rules)
    return Trace(session_id, "session", session.model or "default", tuple(events))


def _trace(header: Mapping[str, Any], source: str, messages: list[Mapping[str, Any]]) -> Trace:
    model = header.get("model")
    priced = list(_priced(messages))
    return Trace(
        header["trace_id"],
        source,
        model if isinstance(model, str) else "",
        tuple(stored_events(priced)),
        is_estimated=any("usage" not in m for m in messages if m.get("role") == "assistant"),
    )


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
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _lines(file: Path) -> Iterator[tuple[int, str]]:
    opened = gzip.open if file.name.endswith(".gz") else open
    try:
        with opened(file, "rt", encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    yield number, line
    except (OSError, EOFError, UnicodeDecodeError):
        raise BadRequest(f"{file.name}: cannot be read") from None


def _stem(file: Path) -> str | None:
    """The name without its ending; None for what is no transcript."""
    for ending in (".jsonl.gz", ".jsonl"):
        if file.name.endswith(ending):
            return file.name.removesuffix(ending)
    return None
