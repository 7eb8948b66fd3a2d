"""What single values of the settings may look like; an error says what is right, not what was."""

import os.path
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import SplitResult, urlsplit
from zoneinfo import ZoneInfo

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, SecretStr

from server.errors import SettingsError


class Part(BaseModel):
    """A piece of the settings that one part of the application gets."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", hide_input_in_errors=True, str_strip_whitespace=True
    )


HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")

_SERVER_NAME = re.compile(r"[A-Za-z0-9]+(?:[-_][A-Za-z0-9]+)*")
"""No double underscore: it stands between the server's name and that of its tool."""

_SERVER_NAME_CAP = 32
"""Leaves half of what models admit to the name of the tool."""

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


def listed(value: object) -> object:
    """The parts of a comma-separated text; anything else as it is."""
    if not isinstance(value, str):
        return value
    return tuple(part for part in (piece.strip() for piece in value.split(",")) if part)


def zone(value: str) -> str:
    """An IANA name that this machine knows, or ValueError."""
    try:
        ZoneInfo(value)
    except (ValueError, OSError, LookupError):
        raise ValueError("must be an IANA name such as Asia/Shanghai") from None
    return value


def folder(value: Path) -> Path:
    """The folder as an absolute path."""
    return Path(os.path.abspath(value.expanduser()))


def upper(value: object) -> object:
    """A text in capitals; anything else as it is."""
    return value.upper() if isinstance(value, str) else value


def with_variables(value: Any, environ: Mapping[str, str], place: str) -> Any:
    """*value* of a TOML file with each `${NAME}` in its texts filled in.

    Args:
        place: Where it stands, for the error.

    Raises:
        SettingsError: There is no such variable.
    """
    if isinstance(value, dict):
        return {
            name: with_variables(field, environ, f"{place} {name}") for name, field in value.items()
        }
    if isinstance(value, list):
        return [with_variables(item, environ, place) for item in value]
    if not isinstance(value, str):
        return value

    def fill_in(found: re.Match[str]) -> str:
        if found[1] not in environ:
            raise SettingsError(f"{place}: names the variable {found[1]}, which is not set")
        return environ[found[1]]

    return _VARIABLE.sub(fill_in, value)


def _split(value: str, right: str) -> tuple[SplitResult, str]:
    """The address *value* and its host with its port; errors say *right*, never the value."""
    try:
        parts = urlsplit(value)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        raise ValueError(right) from None
    if not parts.scheme or not host:
        raise ValueError(right)
    standard = {"http": 80, "https": 443}.get(parts.scheme)
    name = f"[{host}]" if ":" in host else host
    return parts, name if port in (None, standard) else f"{name}:{port}"


def _base_url(value: str) -> str:
    parts, _ = _split(value, "must be an http:// or https:// address")
    if parts.scheme not in ("http", "https"):
        raise ValueError("must be an http:// or https:// address")
    if parts.fragment:
        raise ValueError("must have no # in it")
    return value.rstrip("/")


def _secret_url(value: SecretStr) -> SecretStr:
    _base_url(value.get_secret_value())
    return value


def _origin(value: str) -> str:
    """An origin as browsers write it; `null` stands for a desktop shell's pages."""
    if value == "null":
        return value
    right = "must be origins like https://chat.example.com, comma-separated"
    parts, host = _split(value.rstrip("/"), right)
    if parts.path or parts.query or parts.fragment or parts.username is not None:
        raise ValueError(right)
    return f"{parts.scheme}://{host}"


def _server_name(value: str) -> str:
    if len(value) > _SERVER_NAME_CAP or not _SERVER_NAME.fullmatch(value):
        raise ValueError(
            "a server's name is up to 32 letters and digits, with single - or _ within"
        )
    return value


def _database(value: SecretStr) -> SecretStr:
    starts = ("sqlite:///", "sqlite+aiosqlite:///", "postgresql://", "postgresql+psycopg://")
    if not value.get_secret_value().startswith(starts):
        raise ValueError("must begin with sqlite:/// or postgresql://")
    return value


BaseUrl = Annotated[str, AfterValidator(_base_url)]
SecretUrl = Annotated[SecretStr, AfterValidator(_secret_url)]
"""As it is, with a slash at its end."""
Origin = Annotated[str, AfterValidator(_origin)]
ServerName = Annotated[str, AfterValidator(_server_name)]
ZoneName = Annotated[str, AfterValidator(zone)]
DatabaseUrl = Annotated[SecretStr, AfterValidator(_database)]
Folder = Annotated[Path, AfterValidator(folder)]
Listed = Annotated[tuple[str, ...], BeforeValidator(listed)]
