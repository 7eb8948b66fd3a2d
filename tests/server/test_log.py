"""Log lines: their form, what they are bound to, and that secrets do not get through."""

import asyncio
import io
import logging
from collections.abc import Iterator

import pytest

from server import log


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    """Where the lines go while a test runs; pytest's own handlers come back afterwards."""
    root = logging.getLogger()
    kept, level = root.handlers[:], root.level
    root.handlers.clear()
    written = io.StringIO()
    log.set_up("INFO", written)
    yield written
    root.handlers[:] = kept
    root.setLevel(level)
    for name in log.OURS:
        logging.getLogger(name).setLevel(logging.NOTSET)


def test_a_line_has_its_fields_in_order(stream: io.StringIO) -> None:
    logging.getLogger("server.test").info("[run] ended outcome=%s", "completed")
    at, level, logger, *message = stream.getvalue().split()
    assert at.endswith("+00:00")
    assert (level, logger) == ("level=INFO", "logger=server.test")
    assert message == ["[run]", "ended", "outcome=completed"]


async def test_a_line_names_the_session_and_run_of_its_task(stream: io.StringIO) -> None:
    logger = logging.getLogger("server.test")

    async def run(session: str) -> None:
        with log.bound(session=session):
            with log.bound(run=f"r-{session}"):
                await asyncio.sleep(0)
                logger.info("inside")
            logger.info("after")

    await asyncio.gather(run("1"), run("2"))
    lines = stream.getvalue().splitlines()
    assert any(line.endswith("session=1 run=r-1 inside") for line in lines)
    assert any(line.endswith("session=2 run=r-2 inside") for line in lines)
    assert any(line.endswith("session=1 after") for line in lines)


def test_a_line_that_names_its_session_is_not_given_it_twice(stream: io.StringIO) -> None:
    with log.bound(session="2210"):
        logging.getLogger("server.test").info("[no-progress] nudge session=%s", "2210")
    assert stream.getvalue().count("session=2210") == 1


def test_a_message_cannot_forge_a_second_line(stream: io.StringIO) -> None:
    logging.getLogger("server.test").info("name=%s", "a\n2026 level=ERROR forged\rx")
    assert len(stream.getvalue().splitlines()) == 1


def test_libraries_keep_quiet_below_warning_whatever_the_level(stream: io.StringIO) -> None:
    log.set_up("DEBUG", stream)
    logging.getLogger("websockets.server").info("text of a frame")
    logging.getLogger("aiosqlite").debug("parameters")
    logging.getLogger("server.test").debug("ours")
    assert [line.rsplit(" ", 1)[1] for line in stream.getvalue().splitlines()] == ["ours"]


@pytest.mark.parametrize(
    "text",
    [
        "Authorization: Bearer SECRET-1",
        "authorization='bearer SECRET-1'",
        "key sk-SECRET-12345678 refused",
        "token=SECRET-1&x=1",
        '{"access_token": "SECRET-1"}',
        "app_secret=SECRET-1",
        "HEADWAY_MODEL_API_KEY=SECRET-1",
        "api-key: SECRET-1",
        "password: SECRET-1",
        "postgresql://user:SECRET-1@host/db",
        "wss://host/connect?ticket=SECRET-1",
        "Cookie: headway=SECRET-1",
    ],
)
def test_what_looks_like_a_credential_is_not_written(stream: io.StringIO, text: str) -> None:
    logging.getLogger("server.test").warning("%s", text)
    assert "SECRET" not in stream.getvalue()
    assert "***" in stream.getvalue()


def test_a_traceback_is_redacted_too(stream: io.StringIO) -> None:
    try:
        raise ValueError("refused token=SECRET-1")
    except ValueError:
        logging.getLogger("server.test").exception("failed")
    assert "Traceback" in stream.getvalue()
    assert "SECRET" not in stream.getvalue()


def test_counts_of_tokens_are_no_credentials() -> None:
    line = "[run] ended rounds=3 tokens=1200 promptTokens=1000 tools=grep_search"
    assert log.redact(line) == line
