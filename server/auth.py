"""Who is speaking, and from where it may be said: users, tokens, the login cookie, origins."""

import hashlib
import hmac
import ipaddress
import os
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from pydantic import SecretStr
from starlette.datastructures import Headers

from server.errors import SettingsError
from server.settings import ADMIN, Settings, Token

COOKIE = "headway"
COOKIE_SECONDS = 30 * 24 * 3600
"""A login lasts as long; changing the token ends it at once."""


@dataclass(frozen=True, slots=True)
class User:
    """Somebody who showed a credential."""

    name: str
    is_admin: bool = False

    def may_see(self, owner: str) -> bool:
        """Whether what belongs to *owner* may be shown to this user."""
        return self.is_admin or self.name == owner


class Users:
    """The users that the settings name, found by what they show."""

    def __init__(self, tokens: Sequence[Token], clock: Callable[[], float] = time.time) -> None:
        self._keys = [
            (User(token.user, token.user == ADMIN), token.secret.get_secret_value().encode())
            for token in tokens
        ]
        self._clock = clock

    @classmethod
    def from_settings(cls, settings: Settings) -> "Users":
        """The users of *settings*; without a token there, the admin of the first-start one."""
        if settings.tokens:
            return cls(settings.tokens)
        secret = SecretStr(first_token(settings.data_dir))
        return cls([Token(user=ADMIN, secret=secret)])

    def by_token(self, token: str) -> User | None:
        """Whose *token* it is. Takes the same time for every wrong one."""
        shown = hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
        found = None
        for user, key in self._keys:
            if hmac.compare_digest(hashlib.sha256(key).digest(), shown):
                found = user
        return found

    def from_headers(self, headers: Headers, cookies: Mapping[str, str]) -> User | None:
        """The user of an `Authorization: Bearer` header; only without one, of the cookie."""
        authorization = headers.get("authorization")
        if authorization is None:
            return self.by_cookie(cookies.get(COOKIE, ""))
        scheme, _, token = authorization.partition(" ")
        return self.by_token(token.strip()) if scheme.lower() == "bearer" else None

    def login_seconds_left(self, headers: Headers, cookies: Mapping[str, str]) -> float | None:
        """How long the login lasts that `from_headers` believes; None for one without an end."""
        if "authorization" in headers or self.by_cookie(cookies.get(COOKIE, "")) is None:
            return None
        ends_at, _, _ = cookies[COOKIE].partition(".")
        return int(ends_at) - self._clock()

    def cookie_for(self, token: str) -> str:
        """The login cookie's value for a *token* that `by_token` knows.

        It is the time it ends at and a code under the token: nothing is kept on the server.
        """
        ends_at = str(int(self._clock()) + COOKIE_SECONDS)
        return f"{ends_at}.{_code(token.encode(), ends_at)}"

    def by_cookie(self, value: str) -> User | None:
        """Whose login cookie *value* is, unless it ended."""
        ends_at, _, code = value.partition(".")
        if not (ends_at.isascii() and ends_at.isdecimal() and len(ends_at) <= 12):
            return None
        if not code.isascii() or int(ends_at) <= self._clock():
            return None
        found = None
        for user, key in self._keys:
            if hmac.compare_digest(_code(key, ends_at), code):
                found = user
        return found


def _code(key: bytes, ends_at: str) -> str:
    return hmac.new(key, b"headway login " + ends_at.encode(), hashlib.sha256).hexdigest()


def first_token(data_dir: Path) -> str:
    """The admin's token kept in *data_dir*, made at the first start.

    Raises:
        SettingsError: The folder cannot be used.
    """
    path = data_dir / "token"
    try:
        data_dir.mkdir(parents=True, exist_ok=True)
        try:
            kept = path.read_text("ascii").strip()
        except FileNotFoundError:
            kept = ""
        return kept or _make_token(path)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a token file"
        raise SettingsError(
            f"HEADWAY_DATA_DIR: the file `token` in it cannot be used ({reason})"
        ) from None


def _make_token(path: Path) -> str:
    """Write a new token beside *path* and move it there, so that a crash leaves no half one."""
    token = secrets.token_urlsafe(32)
    draft = path.with_name(f".token.{os.getpid()}")
    draft.unlink(missing_ok=True)
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w", encoding="ascii") as file:
        file.write(token + "\n")
    draft.replace(path)
    return token


class OriginPolicy:
    """Which pages may speak to the server.

    A browser sends cookies along with requests that foreign pages make, and opens sockets for
    them; `Origin` tells. On a loopback address a foreign name that resolves to it (DNS
    rebinding) makes foreign pages look like our own; `Host` tells. The port in `Host` may be
    any: a browser sends the one it connected to, a forwarded port too.
    """

    def __init__(self, public_origins: Sequence[str], host: str) -> None:
        self._origins = frozenset(public_origins)
        self._hosts = frozenset(
            (urlsplit(origin).hostname or "") for origin in public_origins if origin != "null"
        )
        self._is_loopback = is_loopback(host)

    @classmethod
    def from_settings(cls, settings: Settings) -> "OriginPolicy":
        """The policy of a server as *settings* place it."""
        return cls(settings.public_origins, settings.host)

    def check(self, headers: Headers) -> str | None:
        """Why a socket or a request that changes something is refused, or None.

        Without an `Origin` it did not come from a page, so a cookie alone is not believed.
        """
        if refused := self.check_read(headers):
            return refused
        is_bare = "origin" not in headers and "authorization" not in headers
        if is_bare and f"{COOKIE}=" in headers.get("cookie", ""):
            return "a cookie needs an Origin beside it"
        return None

    def check_read(self, headers: Headers) -> str | None:
        """Why a request that only reads is refused, or None; pages read without an `Origin`."""
        hosts = headers.getlist("host")
        origins = headers.getlist("origin")
        if len(hosts) != 1 or len(origins) > 1:
            return "one Host and at most one Origin are needed"
        host = hosts[0].lower()
        if self._is_loopback and not self._is_ours(host):
            return "this Host is not served here"
        if not origins or origins[0] in self._origins:
            return None
        return None if _is_same(origins[0], host) else "this Origin is not allowed"

    def _is_ours(self, host: str) -> bool:
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        return is_loopback(name) or name in self._hosts


def is_loopback(host: str) -> bool:
    """Whether *host* is only reached from this machine."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _is_same(origin: str, host: str) -> bool:
    """Whether a page of *origin* was served under *host*, by us or a proxy in front."""
    scheme, divider, name = origin.lower().partition("://")
    return bool(divider) and scheme in ("http", "https") and name == host
