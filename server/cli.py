"""The command line. Only this module looks at the process's environment."""

import asyncio
import contextlib
import logging
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from server import doctor as doctor_checks
from server import log, replay_cli, tasks_cli
from server.app import create_app
from server.auth import first_token
from server.chat import chat as converse
from server.errors import SettingsError, StoreUnavailable
from server.serve import listen, url_of
from server.serve import run as run_server
from server.settings import Settings, load_settings
from server.store.migrate import head
from server.store.migrate import migrate as migrate_database

logger = logging.getLogger(__name__)

cli = typer.Typer()

_SERVING = ("Headway 已启动：{}", "Headway serves at {}")
_LOGIN = ("登录链接（请勿外传）：{}", "Login link, not to be shared: {}")
_STOP = ("按 Ctrl-C 停止。", "Press Ctrl-C to stop.")


@cli.command()
def serve(
    host: Annotated[str | None, typer.Option(help="Instead of HEADWAY_HOST.")] = None,
    port: Annotated[int | None, typer.Option(help="Instead of HEADWAY_PORT; 0 is any.")] = None,
) -> None:
    """Serve until Ctrl-C. Brings the database up to date first."""
    settings = _settings(HEADWAY_HOST=host, HEADWAY_PORT=None if port is None else str(port))
    _prepare(settings)
    with listen(settings.host, settings.port) as listener:
        settings = settings.model_copy(update={"port": listener.getsockname()[1]})
        url = url_of(listener)
        app = create_app(settings, os.environ)
        with contextlib.suppress(KeyboardInterrupt):  # Ctrl-C, after everything was closed
            run_server(
                app,
                listener,
                on_started=lambda: _greet(settings, url),
                on_closing=app.state.closing.set,
            )


@cli.command()
def chat(
    url: Annotated[str | None, typer.Option(help="Of the server; default the own one.")] = None,
    session: Annotated[str | None, typer.Option(help="Go on with this session.")] = None,
) -> None:
    """Talk to a running server in the terminal."""
    settings = _settings()
    where, token = _server_of(settings, url)
    ended_well = asyncio.run(
        converse(where, token, session, settings.locale, sys.stdin, sys.stdout)
    )
    if not ended_well:
        raise typer.Exit(1)


@tasks_cli.tasks.callback()
def tasks(
    context: typer.Context,
    url: Annotated[str | None, typer.Option(help="Of the server; default the own one.")] = None,
) -> None:
    """Scheduled tasks of the running server."""
    settings = _settings()
    context.obj = tasks_cli.Server(*_server_of(settings, url), settings.locale)


@cli.command()
def migrate() -> None:
    """Bring the database to the revision that this version needs."""
    _prepare(_settings())
    typer.echo(f"The database is at revision {head()}.")


@cli.command()
def doctor() -> None:
    """Look for what stands in the way of a good start, and say how to mend it."""
    if not doctor_checks.report(_settings(), os.environ, typer.echo):
        raise typer.Exit(1)


def _server_of(settings: Settings, url: str | None) -> tuple[str, str]:
    """Address of the running server, at *url* if that is given, and a token for it."""
    token = (
        settings.tokens[0].secret.get_secret_value()
        if settings.tokens
        else first_token(settings.data_dir)
    )
    return (url or f"http://{settings.host}:{settings.port}").rstrip("/"), token


def _settings(**instead: str | None) -> Settings:
    """The settings of this process; *instead* are variables that options stand for."""
    log.set_up("INFO")
    given = {name: value for name, value in instead.items() if value is not None}
    settings = load_settings({**os.environ, **given}, Path(".env"))
    log.set_up(settings.log_level)
    return settings


def _prepare(settings: Settings) -> None:
    try:
        settings.data_dir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SettingsError(f"HEADWAY_DATA_DIR: cannot be made ({error.strerror})") from None
    migrate_database(settings.database_url.get_secret_value())


def _greet(settings: Settings, url: str) -> None:
    """Say where the server is, on standard output: a login link must not be in a log."""
    logger.info("[serve] started address=%s", url)
    is_english = settings.locale == "en"
    lines = [_SERVING[is_english].format(url)]
    if not settings.tokens:
        link = f"{url}/#token={first_token(settings.data_dir)}"
        lines.append(_LOGIN[is_english].format(link))
    typer.echo("\n".join([*lines, _STOP[is_english]]))


def command_line() -> typer.Typer:
    """All commands; `tasks` has some of its own."""
    whole = typer.Typer(
        name="headway",
        help="A chat-agent backend that stops when it stops making headway.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
    )
    whole.add_typer(cli)
    whole.add_typer(tasks_cli.tasks, name="tasks")
    replay_cli.add_replay(whole, _settings)
    return whole


def main() -> None:
    """Run the command line; what an operator can mend is one line, not a traceback."""
    try:
        command_line()()
    except (SettingsError, StoreUnavailable) as error:
        typer.echo(f"headway: {error}", err=True)
        sys.exit(2)
