"""Settings: read once from the environment and one TOML file into one frozen value.

`load_settings` is handed the environment; nothing below the command line looks at it again.
A wrong value stops the start with a `SettingsError` that names the variable and what is right,
and never shows the value itself.
"""

import difflib
import logging
import os.path
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from dotenv import dotenv_values
from pydantic import (
    BeforeValidator,
    Field,
    SecretStr,
    ValidationError,
    model_validator,
)

from server.errors import Locale, SettingsError
from server.settings_policy import PolicySettings
from server.settings_tools import ToolContractSettings
from server.settings_values import (
    HEADER_NAME,
    BaseUrl,
    DatabaseUrl,
    Folder,
    Listed,
    Origin,
    Part,
    SecretUrl,
    ServerName,
    ZoneName,
    folder,
    listed,
    upper,
    with_variables,
    zone,
)

logger = logging.getLogger(__name__)

PREFIX = "HEADWAY_"
ADMIN = "admin"
"""The user of a token without a name; sees every session."""


def _token(value: str) -> dict[str, str]:
    """`name=token`, or a bare token, whose own padding of `=` names nobody."""
    name, equals, secret = value.partition("=")
    if not equals or not secret.strip("="):
        name, secret = ADMIN, value
    return {"user": name.strip(), "secret": secret.strip()}


def _tokens(value: object) -> object:
    parts = listed(value)
    if not isinstance(parts, tuple):
        return parts
    return tuple(_token(part) if isinstance(part, str) else part for part in parts)


class Token(Part):
    """A credential and whose it is."""

    user: str = Field(min_length=1, max_length=64, pattern=r"^[^\s,=]+$")
    secret: SecretStr = Field(min_length=1, max_length=512)

    @model_validator(mode="after")
    def _fits_a_header(self) -> "Token":
        secret = self.secret.get_secret_value()
        if not secret.isascii() or not secret.isprintable() or " " in secret:
            raise ValueError("a token must be printable ASCII without spaces")
        return self


class ModelSettings(Part):
    """The gateway of the chat model; without one the built-in stand-in answers."""

    base_url: BaseUrl | None = None
    """Of an OpenAI-compatible API, up to and without `/chat/completions`."""
    api_key: SecretStr | None = None
    name: str = ""
    context_tokens: int = Field(default=128_000, ge=4_096)
    """What the model's context holds, in tokens."""

    @property
    def is_builtin(self) -> bool:
        """No gateway is named: the offline stand-in answers."""
        return self.base_url is None

    @model_validator(mode="after")
    def _is_whole(self) -> "ModelSettings":
        if self.base_url is not None and not self.name:
            raise ValueError("HEADWAY_MODEL: is needed with HEADWAY_MODEL_BASE_URL")
        if self.base_url is None and (self.name or self.api_key is not None):
            raise ValueError(
                "HEADWAY_MODEL_BASE_URL: is needed with HEADWAY_MODEL or HEADWAY_MODEL_API_KEY"
            )
        return self


class CompactionSettings(Part):
    """When and how a history is made shorter."""

    trigger_ratio: float = Field(default=0.8, gt=0.1, lt=1.0)
    """Share of the context that a prompt may fill before it is compacted."""
    keep_rounds: int = Field(default=6, ge=1)
    """The last rounds that stay as they are."""


class ShellSettings(Part):
    """The `shell` tool."""

    enabled: bool = True


ApprovalMode = Literal["never", "sends", "writes", "always"]
"""Which calls a person is asked about: none; what sends; what writes too; every one."""


class ApprovalSettings(Part):
    """When a person is asked before a tool runs, by where the session came from."""

    web: ApprovalMode = "sends"
    feishu: ApprovalMode = "sends"
    dingtalk: ApprovalMode = "sends"
    scheduled: ApprovalMode = "never"
    """Nobody looks on; what a task may do was agreed to when it was made."""
    expire_minutes: int = Field(default=24 * 60, ge=1)
    """An answer that did not come by then ends the run."""


class SubagentSettings(Part):
    """What subagents a run may have."""

    depth: int = Field(default=1, ge=0)
    """Generations below a session; 0 switches them off."""
    at_once: int = Field(default=3, ge=1)
    """Of one run, working at the same time."""
    per_run: int = Field(default=12, ge=1)
    """Of one run, altogether."""


CallKind = Literal["read", "write", "send"]
"""What a call of a foreign tool does to the world: nothing, something, or tell somebody."""


class McpSettings(Part):
    """An MCP server whose tools the agent gets; in its texts `${NAME}` is a variable's value."""

    command: str | None = Field(default=None, min_length=1)
    """Started as a child process and spoken to by its standard input and output."""
    args: tuple[SecretStr, ...] = ()
    env: Mapping[str, SecretStr] = Field(default_factory=dict)
    """Variables of the child beside the plain ones, which hold no secrets."""
    url: SecretUrl | None = None
    """Spoken to by streamable HTTP. Secret, since some carry their key in the query."""
    headers: Mapping[str, SecretStr] = Field(default_factory=dict)
    kind: CallKind = "write"
    """Of tools that are not in `kinds`. What a server says of its own tools is not believed."""
    kinds: Mapping[str, CallKind] = Field(default_factory=dict)
    """By the server's name of the tool."""
    tools: tuple[str, ...] | None = None
    """Names of the tools that are taken; without it all are."""
    timeout_seconds: float = Field(default=60.0, gt=0, le=3600)
    """For one call."""
    contracts: Mapping[str, ToolContractSettings] = Field(default_factory=dict)
    """By the server's name of the tool, what of its calls and results matters to the guard."""

    @model_validator(mode="after")
    def _has_one_way(self) -> "McpSettings":
        if (self.command is None) == (self.url is None):
            raise ValueError("needs either a command or a url")
        if self.command is None and (self.args or self.env):
            raise ValueError("args and env go with a command")
        if self.url is None and self.headers:
            raise ValueError("headers go with a url")
        for name, value in self.headers.items():
            text = value.get_secret_value()
            if not HEADER_NAME.fullmatch(name) or not (text.isascii() and text.isprintable()):
                raise ValueError("headers need a plain name and printable ASCII")
        if any(not name or "=" in name for name in self.env):
            raise ValueError("env needs names without =")
        return self


class FeishuSettings(Part):
    """One Feishu or Lark bot."""

    app_id: str = Field(min_length=1)
    app_secret: SecretStr = Field(min_length=1)
    domain: BaseUrl = "https://open.feishu.cn"
    """`https://open.larksuite.com` for Lark."""
    mode: Literal["websocket", "webhook"] = "websocket"
    encrypt_key: SecretStr | None = None
    verification_token: SecretStr | None = None
    allow: Listed = ()
    """Ids of who may talk to it; `*` is everyone, nothing is nobody."""
    respond_to_mention_all: bool = False
    """Whether `@all` in a group counts as a mention."""
    allow_bots: bool = False
    """Whether other bots that mention it are answered."""

    @model_validator(mode="after")
    def _can_trust_its_webhook(self) -> "FeishuSettings":
        if self.mode == "webhook" and not (self.encrypt_key or self.verification_token):
            raise ValueError("mode webhook needs an encrypt_key or a verification_token")
        return self


class DingTalkSettings(Part):
    """One DingTalk bot."""

    client_id: str = Field(min_length=1)
    client_secret: SecretStr = Field(min_length=1)
    robot_code: str = ""
    """The client id where the console shows no other."""
    card_template_id: str | None = None
    """Without it answers come as markdown messages instead of cards."""
    api_base: BaseUrl = "https://api.dingtalk.com"
    oapi_base: BaseUrl = "https://oapi.dingtalk.com"
    allow: Listed = ()
    """Ids of who may talk to it; `*` is everyone, nothing is nobody."""

    @model_validator(mode="before")
    @classmethod
    def _robot_is_the_client(cls, values: Any) -> Any:
        if isinstance(values, dict) and "client_id" in values:
            return {"robot_code": values["client_id"], **values}
        return values


class Settings(Part):
    """Everything that can be set."""

    host: str = Field(default="127.0.0.1", min_length=1)
    port: int = Field(default=8765, ge=0, le=65_535)
    """0 takes a free one."""
    data_dir: Folder
    """Holds the database, files, workspaces and the first-start token."""
    database_url: DatabaseUrl
    workspace: Folder
    """The folder that the tools of all sessions work in and never leave."""
    tokens: Annotated[tuple[Token, ...], BeforeValidator(_tokens)] = ()
    """Without one, a random token is made at the first start."""
    public_origins: Annotated[tuple[Origin, ...], BeforeValidator(listed)] = ()
    """Origins beyond the server's own whose pages may speak to it."""
    on_restart: Literal["resume", "fail"] = "resume"
    """What becomes of a run whose process died."""
    locale: Locale = "zh-CN"
    """Language of new sessions' texts."""
    timezone: ZoneName
    """IANA name, kept in a session from its birth."""
    log_level: Annotated[Literal["DEBUG", "INFO", "WARNING", "ERROR"], BeforeValidator(upper)] = (
        "INFO"
    )
    model: ModelSettings = ModelSettings()
    compaction: CompactionSettings = CompactionSettings()
    shell: ShellSettings = ShellSettings()
    feishu: tuple[FeishuSettings, ...] = ()
    dingtalk: tuple[DingTalkSettings, ...] = ()
    subagents: SubagentSettings = SubagentSettings()
    approvals: ApprovalSettings = ApprovalSettings()
    policy: PolicySettings = PolicySettings()
    mcp: Mapping[ServerName, McpSettings] = Field(default_factory=dict)
    """By the server's name."""

    @model_validator(mode="after")
    def _names_each_once(self) -> "Settings":
        for name, keys in (
            ("HEADWAY_TOKENS: a token", [token.secret.get_secret_value() for token in self.tokens]),
            ("[[feishu]]: an app_id", [bot.app_id for bot in self.feishu]),
            ("[[dingtalk]]: a client_id", [bot.client_id for bot in self.dingtalk]),
        ):
            if len(keys) != len(set(keys)):
                raise ValueError(f"{name} is given twice")
        return self


_PLAIN = (
    "host port database_url data_dir workspace tokens public_origins on_restart locale timezone "
    "log_level"
).split()
_SECTIONS = ("feishu", "dingtalk", "compaction", "shell", "subagents", "approvals", "policy", "mcp")


_ONLY_IN_FILE = frozenset({"respond_to_mention_all", "allow_bots"})
"""Fine points of a bot, for the TOML file alone."""


def _variables() -> dict[str, tuple[str, ...]]:
    """Each variable's name and where its value goes."""
    places: list[tuple[str, ...]] = [(name,) for name in _PLAIN]
    places += [("model", "base_url"), ("model", "api_key"), ("model", "context_tokens")]
    places += [
        ("feishu", name) for name in FeishuSettings.model_fields if name not in _ONLY_IN_FILE
    ]
    places += [("dingtalk", name) for name in DingTalkSettings.model_fields]
    named = {PREFIX + "_".join(p).upper(): p for p in places}
    return named | {PREFIX + "MODEL": ("model", "name"), PREFIX + "CONFIG": ("config",)}


VARIABLES = _variables()
"""Every variable that is read, by name."""


def load_settings(environ: Mapping[str, str], env_file: Path | None = None) -> Settings:
    """Read the settings from *environ*, then *env_file*, then the TOML file they name.

    Args:
        environ: The process's environment; empty values count as absent.
        env_file: A `.env`, if there is one; *environ* wins over it.

    Raises:
        SettingsError: A value is wrong, missing or stands in an unknown place of the TOML file.
    """
    filed = dotenv_values(env_file, interpolate=False) if env_file is not None else {}
    given = {name: value for name, value in {**filed, **environ}.items() if value}
    _warn_of_unknown(given)
    values = {place: given[name] for name, place in VARIABLES.items() if name in given}
    config = values.pop(("config",), None)
    return _validated(values, _sections(config) if config else {}, given)


def _warn_of_unknown(names: Iterable[str]) -> None:
    for name in sorted(names):
        if name.startswith(PREFIX) and name not in VARIABLES:
            near = difflib.get_close_matches(name, VARIABLES, n=1)
            logger.warning("%s is not a setting%s", name, _suggestion(near))


def _suggestion(near: Sequence[str]) -> str:
    return f"; did you mean {near[0]}?" if near else ""


def _sections(config: str) -> dict[str, Any]:
    try:
        tables = tomllib.loads(Path(config).expanduser().read_text("utf-8"))
    except OSError as error:
        raise SettingsError(f"HEADWAY_CONFIG: the file cannot be read ({error.strerror})") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"HEADWAY_CONFIG: the file is not TOML: {error}") from None
    for name in tables:
        if name not in _SECTIONS:
            near = difflib.get_close_matches(name, _SECTIONS, n=1)
            raise SettingsError(f"HEADWAY_CONFIG: [{name}] is not a section{_suggestion(near)}")
    return tables


def _validated(
    values: Mapping[tuple[str, ...], str], sections: Mapping[str, Any], environ: Mapping[str, str]
) -> Settings:
    tree: dict[str, Any] = {**sections}
    bots: dict[str, dict[str, str]] = {}
    for (head, *rest), value in values.items():
        if not rest:
            tree[head] = value
        elif head == "model":
            tree.setdefault(head, {})[rest[0]] = value
        else:
            bots.setdefault(head, {})[rest[0]] = value
    for platform, bot in bots.items():
        listed = tree.get(platform, [])
        tree[platform] = [bot, *listed] if isinstance(listed, list) else listed
    _set_defaults(tree, environ)
    if isinstance(servers := tree.get("mcp"), dict):
        tree["mcp"] = {
            name: with_variables(table, environ, f"HEADWAY_CONFIG [mcp.{name}]")
            for name, table in servers.items()
        }
    try:
        return Settings.model_validate(tree)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise SettingsError(_sentence(first["loc"], first["type"], first["msg"], bots)) from None


def _set_defaults(tree: dict[str, Any], environ: Mapping[str, str]) -> None:
    """Fill in what depends on the machine or on another setting."""
    if "data_dir" not in tree:
        shared = environ.get("XDG_DATA_HOME") or Path(environ.get("HOME", "~"), ".local", "share")
        tree["data_dir"] = Path(shared, "headway")
    home = folder(Path(tree["data_dir"]))
    tree.setdefault("database_url", f"sqlite:///{home / 'headway.db'}")
    tree.setdefault("workspace", home / "workspace")
    tree.setdefault("timezone", _host_timezone(environ))


def _host_timezone(environ: Mapping[str, str]) -> str:
    """The host's zone by its IANA name; UTC where the host has none that we know."""
    link = os.path.realpath("/etc/localtime").partition("/zoneinfo/")[2]
    for name in (environ.get("TZ", "").removeprefix(":"), link):
        try:
            return zone(name)
        except ValueError:
            continue
    return "UTC"


def _sentence(loc: Sequence[int | str], kind: str, message: str, bots: Mapping[str, object]) -> str:
    """Name the variable or the place in the TOML file, and what is right there."""
    name = _place(loc, bots)
    if kind == "missing":
        return f"{name}: is missing"
    if kind == "extra_forbidden":
        return f"{name}: is not known here"
    text = message.removeprefix("Value error, ")
    return f"{name}: {text}" if name else text


def _place(loc: Sequence[int | str], bots: Mapping[str, object]) -> str:
    """The variable that *loc* was read from, or its place in the TOML file."""
    if not loc:
        return ""
    head, *rest = loc
    if head == "model" or (head in bots and rest[:1] == [0]):
        fields = [str(part) for part in rest if isinstance(part, str)]
        places = {place: name for name, place in VARIABLES.items()}
        return places.get((str(head), *fields[:1]), _platform(str(head)))
    if head in _PLAIN:
        return PREFIX + str(head).upper()
    if rest and isinstance(rest[0], int):
        entry = rest[0] if head in bots else rest[0] + 1
        return " ".join(["HEADWAY_CONFIG", f"[[{head}]] number {entry}", *map(str, rest[1:])])
    if head == "mcp" and rest:
        head, rest = f"mcp.{rest[0]}", [part for part in rest[1:] if part != "[key]"]
    return " ".join(["HEADWAY_CONFIG", f"[{head}]", *map(str, rest)])


def _platform(head: str) -> str:
    return "" if head == "model" else f"{PREFIX}{head.upper()}_*"
