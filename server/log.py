"""Logging: one event per line, and nothing in it that must not leave the process.

A line holds its time, level and logger, the session and run that it was written in, and the
message. Messages of people, arguments, results and secrets are never handed to a logger; `redact`
is the net below that rule for what foreign code writes.
"""

import contextlib
import logging
import re
import sys
from collections.abc import Iterator
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import TextIO

OURS = ("server", "channels", "guard")
"""Loggers that follow the level set; those of libraries stay at WARNING.

At INFO the server's library writes whole addresses; at DEBUG those of sockets and databases
write frames and parameters as they are.
"""

_session: ContextVar[str | None] = ContextVar("session", default=None)
_run: ContextVar[str | None] = ContextVar("run", default=None)

_SECRETS = re.compile(
    r"""
    (?P<kept>
        \b(?:bearer|basic)\s+
      | [\w.-]*(?:token|secret|password|passwd|api[_-]?key|authorization|cookie|ticket)
        ["']?\s*[=:]\s*["']?(?:bearer\s+|basic\s+)?
      | ://[^\s:/@]*:(?=[^\s/@]+@)
    )
    (?P<secret>[^\s"',;&@)}\]]+)
  | \bsk-[\w-]{8,}
    """,
    re.IGNORECASE | re.VERBOSE,
)


def redact(text: str) -> str:
    """*text* with what looks like a credential replaced by `***`."""
    return _SECRETS.sub(lambda found: f"{found['kept'] or ''}***", text)


@contextlib.contextmanager
def bound(*, session: str | None = None, run: str | None = None) -> Iterator[None]:
    """Name the session and run in each line logged inside, by tasks started there too."""
    session_was, run_was = _session.set(session or _session.get()), _run.set(run or _run.get())
    try:
        yield
    finally:
        _session.reset(session_was)
        _run.reset(run_was)


class LineFormatter(logging.Formatter):
    """`time level=… logger=… session=… run=… message`; a traceback follows on its own lines."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        """The one line of *record*."""
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        bound_to = "".join(
            f" {name}={value}"
            for name, value in (("session", _session.get()), ("run", _run.get()))
            if value is not None and f"{name}=" not in record.message
        )
        message = record.message.replace("\r", "\\r").replace("\n", "\\n")
        return f"{at} level={record.levelname} logger={record.name}{bound_to} {message}"

    def format(self, record: logging.LogRecord) -> str:
        """The line and its traceback, redacted as a whole: causes may quote what they got."""
        return redact(super().format(record))


def set_up(level: str, stream: TextIO | None = None) -> None:
    """Send every line to *stream* (standard error); calling it again replaces the set-up."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(LineFormatter())
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    for name in OURS:
        logging.getLogger(name).setLevel(level)
