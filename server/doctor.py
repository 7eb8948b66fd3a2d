"""What stands in the way of a good start, each with how to mend it."""

import asyncio
import os
import shutil
import stat
import sys
import zoneinfo
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from channels.dingtalk.check import check_dingtalk
from channels.feishu.check import check_feishu
from channels.port import Check
from server.auth import is_loopback
from server.bots import dingtalk_config, feishu_config
from server.errors import SettingsError, StoreRefused, StoreUnavailable
from server.llm.openai import ModelSettings, open_model
from server.serve import listen
from server.settings import McpSettings, Settings
from server.store.migrate import head, revision
from server.tools.mcp import check_mcp
from server.tools.search import find_ripgrep

OLDEST_PYTHON = (3, 11)
LEAST_FREE_BYTES = 200 * 1024 * 1024
SHORT_TOKEN_CHARACTERS = 16
"""Shorter ones can be guessed by whoever reaches the port."""

Verdict = Literal["ok", "warn", "fail"]


@dataclass(frozen=True, slots=True)
class Finding:
    """What one look found."""

    verdict: Verdict
    subject: str
    text: str

    def __str__(self) -> str:
        return f"{self.verdict:4}  {self.subject}: {self.text}"


def examine(settings: Settings, environment: Mapping[str, str]) -> Iterator[Finding]:
    """Look at everything the server needs, the slow things last.

    Args:
        environment: Of this process; what child processes inherit is chosen from it.
    """
    yield _python()
    yield _folder("data folder", settings.data_dir, "HEADWAY_DATA_DIR")
    yield _folder("workspace", settings.workspace, "HEADWAY_WORKSPACE")
    yield _database(settings)
    yield _address(settings)
    yield from _tokens(settings)
    yield _timezone(settings)
    yield _search()
    yield _shell(settings)
    yield from _test_programs()
    yield _model(settings)
    yield from _bots(settings)
    for name, server in settings.mcp.items():
        yield _mcp(name, server, environment)


def is_healthy(findings: Sequence[Finding]) -> bool:
    """Nothing keeps the server from working."""
    return all(finding.verdict != "fail" for finding in findings)


def _python() -> Finding:
    version = ".".join(str(part) for part in sys.version_info[:3])
    if sys.version_info[:2] < OLDEST_PYTHON:
        return Finding("fail", "Python", f"{version} is too old; install 3.11 or later")
    return Finding("ok", "Python", version)


def _folder(subject: str, folder: Path, variable: str) -> Finding:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        free_bytes = shutil.disk_usage(folder).free
    except OSError as error:
        return Finding("fail", subject, f"cannot be made ({error.strerror}); set {variable}")
    if not os.access(folder, os.W_OK | os.X_OK):
        return Finding("fail", subject, f"{folder} cannot be written; change its owner")
    if free_bytes < LEAST_FREE_BYTES:
        return Finding("warn", subject, f"only {free_bytes >> 20} MB are free at {folder}")
    return Finding("ok", subject, str(folder))


def _database(settings: Settings) -> Finding:
    try:
        found, needed = revision(settings.database_url.get_secret_value()), head()
    except (StoreUnavailable, StoreRefused, SettingsError) as error:
        return Finding("fail", "database", f"{error}; check HEADWAY_DATABASE_URL")
    if found is None:
        return Finding("ok", "database", "empty; `headway serve` sets it up")
    if found != needed:
        text = f"at revision {found}, {needed} is needed; run `headway migrate`"
        return Finding("warn", "database", text)
    return Finding("ok", "database", f"at revision {found}")


def _address(settings: Settings) -> Finding:
    where = f"{settings.host}:{settings.port}"
    try:
        listen(settings.host, settings.port).close()
    except SettingsError as error:
        return Finding("warn", "address", f"{where} is not free, a server may run: {error}")
    if not is_loopback(settings.host) and not settings.public_origins:
        text = f"{where} is reached from other machines; put a TLS proxy in front and name its "
        return Finding("warn", "address", text + "origin in HEADWAY_PUBLIC_ORIGINS")
    return Finding("ok", "address", f"{where} is free")


def _tokens(settings: Settings) -> Iterator[Finding]:
    if not settings.tokens:
        yield _first_token(settings.data_dir / "token")
        return
    short = [t.user for t in settings.tokens if len(t.secret) < SHORT_TOKEN_CHARACTERS]
    if short and not is_loopback(settings.host):
        names = ", ".join(sorted(set(short)))
        yield Finding("warn", "tokens", f"too short to be safe: those of {names}")
    else:
        yield Finding("ok", "tokens", f"{len(settings.tokens)} in HEADWAY_TOKENS")


def _first_token(path: Path) -> Finding:
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
    except FileNotFoundError:
        return Finding("ok", "tokens", "one is made at the first start")
    except OSError as error:
        return Finding("fail", "tokens", f"{path} cannot be read ({error.strerror})")
    if mode & 0o077:
        return Finding("warn", "tokens", f"others can read {path}; run `chmod 600` on it")
    return Finding("ok", "tokens", f"kept in {path}")


def _timezone(settings: Settings) -> Finding:
    if len(zoneinfo.available_timezones()) < 100:
        return Finding("fail", "time zones", "the data is missing; install the package tzdata")
    return Finding("ok", "time zones", settings.timezone)


def _search() -> Finding:
    found = find_ripgrep()
    if found is None:
        text = "missing; install the Python package ripgrep==14.1.0, or rg by the system's own"
        return Finding("fail", "ripgrep", text)
    return Finding("ok", "ripgrep", str(found))


def _shell(settings: Settings) -> Finding:
    if not settings.shell.enabled:
        return Finding("ok", "shell", "switched off")
    if shutil.which("bash") is None and shutil.which("sh") is None:
        return Finding("fail", "shell", "neither bash nor sh is there; install bash")
    return Finding("ok", "shell", "commands run with the rights of this user")


def _test_programs() -> Iterator[Finding]:
    """What only the tests need, so its lack is never more than a warning."""
    for program, package in (("chromium", "chromium"), ("node", "nodejs"), ("psql", "postgresql")):
        if shutil.which(program) is None:
            text = f"missing, so its tests are left out; install the package {package}"
            yield Finding("warn", program, text)
        else:
            yield Finding("ok", program, "there, for the tests")


def _model(settings: Settings) -> Finding:
    if settings.model.is_builtin:
        text = "none is set, the built-in stand-in answers; set HEADWAY_MODEL_BASE_URL, "
        return Finding("warn", "model", text + "HEADWAY_MODEL and HEADWAY_MODEL_API_KEY")
    reason = asyncio.run(_ask_model(settings))
    if reason is not None:
        return Finding("fail", "model", reason)
    return Finding("ok", "model", f"{settings.model.name} can be asked")


async def _ask_model(settings: Settings) -> str | None:
    model = settings.model
    assert model.base_url is not None, "only called for a gateway"
    key = "" if model.api_key is None else model.api_key.get_secret_value()
    asked = ModelSettings(model.base_url, model.name, key, locale="en")
    try:
        async with asyncio.timeout(15), open_model(asked) as opened:
            return await opened.check()
    except TimeoutError:
        return "no answer within 15 s; check HEADWAY_MODEL_BASE_URL"


def _bots(settings: Settings) -> Iterator[Finding]:
    """Ask each platform what it thinks of its bot."""
    for feishu in settings.feishu:
        checks = asyncio.run(check_feishu(feishu_config(feishu, settings)))
        yield from _checked(f"feishu {feishu.app_id}", checks, feishu.allow)
    for dingtalk in settings.dingtalk:
        checks = asyncio.run(check_dingtalk(dingtalk_config(dingtalk, settings)))
        yield from _checked(f"dingtalk {dingtalk.client_id}", checks, dingtalk.allow)


def _checked(bot: str, checks: Iterable[Check], allow: Sequence[str]) -> Iterator[Finding]:
    for check in checks:
        yield Finding("ok" if check.is_good else "fail", f"{bot} {check.subject}", check.text)
    if not allow:
        text = "nobody may talk to it; name ids, or * for everyone, in its allow setting"
        yield Finding("warn", f"{bot} allow", text)


def _mcp(name: str, server: McpSettings, environment: Mapping[str, str]) -> Finding:
    """Connect once; what the server's program says of its trouble goes to the error output."""
    subject = f"mcp {name}"
    try:
        reason, offered = asyncio.run(check_mcp(server, environment, sys.stderr))
    except SettingsError as error:
        return Finding("fail", subject, str(error))
    if reason is not None:
        return Finding("warn", subject, f"{reason}; until it is there its tools are not")
    missing = {*server.kinds, *(server.tools or ())} - set(offered)
    if missing:
        text = f"has no tool named {', '.join(sorted(missing))}; it has {', '.join(offered)}"
        return Finding("warn", subject, text)
    return Finding("ok", subject, f"lists {len(offered)} tools")


def report(settings: Settings, environment: Mapping[str, str], say: Callable[[str], None]) -> bool:
    """Say each finding as it is found; whether the server can work."""
    findings = []
    for finding in examine(settings, environment):
        say(str(finding))
        findings.append(finding)
    return is_healthy(findings)
