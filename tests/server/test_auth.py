"""Users, the login cookie, the first-start token, and which pages may speak."""

import stat
from pathlib import Path

import pytest
from pydantic import SecretStr
from starlette.datastructures import Headers

from server.auth import COOKIE, COOKIE_SECONDS, OriginPolicy, User, Users, first_token
from server.errors import SettingsError
from server.settings import Token, load_settings

ALICE, ADMIN = User("alice"), User("admin", is_admin=True)


class Clock:
    """A time that a test moves."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


def users_of(clock: Clock | None = None, **tokens: str) -> Users:
    listed = [Token(user=name, secret=SecretStr(secret)) for name, secret in tokens.items()]
    return Users(listed, clock or Clock())


def headers(**values: str) -> Headers:
    return Headers({name.replace("_", "-"): value for name, value in values.items()})


def test_a_user_sees_his_own_and_the_admin_all() -> None:
    assert ALICE.may_see("alice")
    assert not ALICE.may_see("admin")
    assert ADMIN.may_see("alice")


def test_a_token_names_its_user() -> None:
    users = users_of(alice="a1", admin="root")
    assert users.by_token("a1") == ALICE
    assert users.by_token("root") == ADMIN
    assert users.by_token("A1") is None
    assert users.by_token("") is None
    assert users.by_token("\udc80") is None


def test_the_header_is_believed_before_the_cookie_and_alone() -> None:
    users = users_of(alice="a1", admin="root")
    cookies = {COOKIE: users.cookie_for("a1")}
    assert users.from_headers(headers(), cookies) == ALICE
    assert users.from_headers(headers(authorization="Bearer root"), cookies) == ADMIN
    assert users.from_headers(headers(authorization="bearer root"), {}) == ADMIN
    assert users.from_headers(headers(authorization="Bearer wrong"), cookies) is None
    assert users.from_headers(headers(authorization="Basic a1"), cookies) is None
    assert users.from_headers(headers(), {}) is None


def test_a_cookie_ends_with_its_time() -> None:
    clock = Clock()
    users = users_of(clock, alice="a1")
    cookie = users.cookie_for("a1")
    clock.now += COOKIE_SECONDS - 1
    assert users.by_cookie(cookie) == ALICE
    clock.now += 1
    assert users.by_cookie(cookie) is None


def test_a_cookie_ends_with_its_token() -> None:
    cookie = users_of(alice="a1").cookie_for("a1")
    assert users_of(alice="a2").by_cookie(cookie) is None


@pytest.mark.parametrize("forged", ["", ".", "9999999999.", "9999999999.00", "x.y", "９.é", "1.é"])
def test_a_forged_cookie_names_nobody(forged: str) -> None:
    assert users_of(alice="a1").by_cookie(forged) is None


def test_a_cookie_cannot_be_made_to_last_longer() -> None:
    users = users_of(alice="a1")
    ends_at, _, code = users.cookie_for("a1").partition(".")
    assert users.by_cookie(f"{int(ends_at) + 1}.{code}") is None


def test_the_first_start_makes_a_token_that_only_its_owner_reads(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "data"
    token = first_token(folder)
    path = folder / "token"
    assert len(token) >= 40
    assert path.read_text("ascii").strip() == token
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert first_token(folder) == token
    assert [entry.name for entry in folder.iterdir()] == ["token"]


def test_without_tokens_the_first_one_is_the_admins(tmp_path: Path) -> None:
    settings = load_settings({"HEADWAY_DATA_DIR": str(tmp_path)})
    assert Users.from_settings(settings).by_token(first_token(tmp_path)) == ADMIN


def test_with_tokens_none_is_made(tmp_path: Path) -> None:
    settings = load_settings({"HEADWAY_DATA_DIR": str(tmp_path), "HEADWAY_TOKENS": "a=b"})
    assert Users.from_settings(settings).by_token("b") == User("a")
    assert list(tmp_path.iterdir()) == []


def test_a_data_folder_that_is_a_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SettingsError, match="HEADWAY_DATA_DIR"):
        first_token(tmp_path / "file")


LOCAL = OriginPolicy([], "127.0.0.1")
PUBLIC = OriginPolicy(["https://chat.example.com", "null"], "127.0.0.1")
OPEN = OriginPolicy([], "0.0.0.0")


@pytest.mark.parametrize(
    ("policy", "host", "origin", "is_allowed"),
    [
        (LOCAL, "127.0.0.1:8765", None, True),
        (LOCAL, "localhost:8765", "http://localhost:8765", True),
        (LOCAL, "[::1]:8765", "http://[::1]:8765", True),
        (LOCAL, "LOCALHOST:8765", "http://localhost:8765", True),
        (LOCAL, "localhost:9000", "http://localhost:9000", True),  # a forwarded port
        (LOCAL, "localhost:8765", "http://localhost:3000", False),  # another local program's page
        (LOCAL, "localhost:8765", "http://127.0.0.1:8765", False),
        (LOCAL, "localhost:8765", "https://evil.example", False),
        (LOCAL, "localhost:8765", "null", False),
        (LOCAL, "localhost:8765", "", False),
        (LOCAL, "localhost:8765", "file://", False),
        (LOCAL, "evil.example:8765", "http://evil.example:8765", False),  # DNS rebinding
        (LOCAL, "evil.example:8765", None, False),
        (LOCAL, "127.0.0.1.evil.example", None, False),
        (LOCAL, "[::1", None, False),
        (LOCAL, "", None, False),
        (PUBLIC, "chat.example.com", "https://chat.example.com", True),  # a proxy on this machine
        (PUBLIC, "localhost:8765", "null", True),
        (PUBLIC, "localhost:8765", "https://other.example.com", False),
        (PUBLIC, "other.example.com", None, False),
        (OPEN, "192.0.2.1:8765", "http://192.0.2.1:8765", True),
        (OPEN, "192.0.2.1:8765", "https://evil.example", False),
    ],
)
def test_a_page_may_speak_from_our_own_and_the_public_origins_only(
    policy: OriginPolicy, host: str, origin: str | None, is_allowed: bool
) -> None:
    shown = headers(host=host) if origin is None else headers(host=host, origin=origin)
    assert (policy.check(shown) is None) is is_allowed
    assert (policy.check_read(shown) is None) is is_allowed


def test_a_cookie_without_an_origin_may_only_read() -> None:
    shown = headers(host="localhost:1", cookie=f"{COOKIE}=1.2")
    assert LOCAL.check_read(shown) is None
    assert LOCAL.check(shown) is not None
    with_origin = headers(host="localhost:1", cookie=f"{COOKIE}=1.2", origin="http://localhost:1")
    assert LOCAL.check(with_origin) is None
    with_token = headers(host="localhost:1", cookie=f"{COOKIE}=1.2", authorization="Bearer x")
    assert LOCAL.check(with_token) is None


def test_two_hosts_or_two_origins_are_refused() -> None:
    raw = [(b"host", b"localhost:1"), (b"host", b"evil.example")]
    assert LOCAL.check_read(Headers(raw=raw)) is not None
    raw = [(b"host", b"localhost:1"), (b"origin", b"http://localhost:1"), (b"origin", b"null")]
    assert LOCAL.check_read(Headers(raw=raw)) is not None
    assert LOCAL.check_read(Headers()) is not None
