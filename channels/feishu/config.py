"""What one Feishu bot is told."""

from dataclasses import dataclass, field
from typing import Literal

from channels.port import Locale

Mode = Literal["websocket", "webhook"]


@dataclass(frozen=True, slots=True)
class FeishuConfig:
    """One bot; secrets do not show in its text."""

    app_id: str
    app_secret: str = field(repr=False)
    domain: str = "https://open.feishu.cn"
    """`https://open.larksuite.com` for Lark; scheme, host and port, nothing more."""
    mode: Mode = "websocket"
    encrypt_key: str = field(default="", repr=False)
    """Of the webhook: with it calls are signed and may be encrypted."""
    verification_token: str = field(default="", repr=False)
    """Of the webhook: the only proof where there is no encrypt key."""
    allow: tuple[str, ...] = ()
    """Ids of people or chats who may use the bot; `*` is everyone, nothing is nobody."""
    locale: Locale = "zh-CN"
    respond_to_mention_all: bool = False
    allow_bots: bool = False


@dataclass(frozen=True, slots=True)
class Patience:
    """How long the platform is waited for."""

    call_seconds: float = 10.0
    """One try of one call, connecting included."""
    discovery_seconds: float = 15.0
    download_seconds: float = 60.0
    pong_grace_seconds: float = 30.0
    """A pong may come so long after its ping before the line counts as dead."""


PATIENT = Patience()
