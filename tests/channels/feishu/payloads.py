"""Pushed events as the platform writes them, with what a case changes."""

import json
from typing import Any

from channels.feishu.decode import Message, decode_event
from channels.feishu.rules import Ask, Rules, Verdict, judge

BOT_MENTION = {
    "key": "@_user_1",
    "id": {"open_id": "ou_bot", "user_id": "", "union_id": "on_bot"},
    "name": "Bot",
    "tenant_key": "tk_1",
}
RULES = Rules("cli_test", "ou_bot", allow=("*",))


def mention(key: str, open_id: str, name: str) -> dict[str, Any]:
    """Somebody named in a message."""
    return {"key": key, "id": {"open_id": open_id, "user_id": "", "union_id": ""}, "name": name}


def event(
    content: Any = None,
    kind: str = "text",
    *,
    sender: dict[str, Any] | None = None,
    app_id: str = "cli_test",
    **message: Any,
) -> bytes:
    """A message in a group that mentions the bot, unless changed."""
    content = {"text": "@_user_1 hello"} if content is None else content
    whole = {
        "schema": "2.0",
        "header": {
            "event_id": "ev_1",
            "event_type": "im.message.receive_v1",
            "create_time": "1760000000000",
            "token": "vt_1",
            "app_id": app_id,
            "tenant_key": "tk_1",
        },
        "event": {
            "sender": {
                "sender_id": {"open_id": "ou_alice", "user_id": "", "union_id": "on_alice"},
                "sender_type": "user",
                "tenant_key": "tk_1",
                **(sender or {}),
            },
            "message": {
                "message_id": "om_1",
                "root_id": "",
                "parent_id": "",
                "thread_id": "",
                "create_time": "1760000000000",
                "chat_id": "oc_g1",
                "chat_type": "group",
                "message_type": kind,
                "content": content if isinstance(content, str) else json.dumps(content),
                "mentions": [BOT_MENTION],
                **message,
            },
        },
    }
    return json.dumps(whole).encode()


def decoded(content: Any = None, kind: str = "text", **changes: Any) -> Message:
    """The message of such an event."""
    message = decode_event(event(content, kind, **changes))
    assert isinstance(message, Message)
    return message


def judged(
    content: Any = None, kind: str = "text", *, rules: Rules = RULES, **changes: Any
) -> Verdict:
    """What the bot makes of such an event."""
    return judge(decoded(content, kind, **changes), rules)


def text_of(verdict: object) -> str:
    """The words of a message that is to be run."""
    assert isinstance(verdict, Ask)
    return verdict.text
