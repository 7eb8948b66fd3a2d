"""Payloads as DingTalk pushes them, decoded."""

import json
from typing import Any

from channels.dingtalk.decode import Heard, decode_message

ROBOT = "ding_test"


def payload(**changes: Any) -> dict[str, Any]:
    """A message of one person to the bot alone; None leaves a field out."""
    made: dict[str, Any] = {
        "msgId": "msgA==",
        "msgtype": "text",
        "text": {"content": "hello"},
        "conversationType": "1",
        "conversationId": "cidAb+C/d==",
        "senderStaffId": "staff01",
        "senderId": "$:LWCP_v1:$x",
        "senderNick": "Alice",
        "chatbotUserId": "$:LWCP_v1:$bot",
        "robotCode": ROBOT,
        "sessionWebhook": "http://sim/robot/sendBySession?session=s1",
        "sessionWebhookExpiredTime": 1760005400000,
        "createAt": 1760000000000,
        "isInAtList": True,
        **changes,
    }
    return {name: value for name, value in made.items() if value is not None}


def decode(**changes: Any) -> Heard:
    """That message, decoded."""
    return decode_message(json.dumps(payload(**changes)), ROBOT)


def rich(*items: Any) -> Heard:
    """A rich text of these elements."""
    return decode(msgtype="richText", text=None, content={"richText": list(items)})


def media(msgtype: str, **content: Any) -> Heard:
    """A message that is one file."""
    return decode(msgtype=msgtype, text=None, content=content)


def quoting(**replied: Any) -> Heard:
    """An answer to something."""
    return decode(text={"content": "why?", "isReplyMsg": True, "repliedMsg": replied})
