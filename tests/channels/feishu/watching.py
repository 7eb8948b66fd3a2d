"""What a person sees in the chats of the local Feishu, and the runs shown there."""

import asyncio

from channels.events import TextAdded
from channels.port import RunSink, Turn
from tests.channels.feishu.inbox import MemoryInbox
from tests.fakes.feishu import FakeFeishu
from tests.fakes.feishu_chats import Bubble, Card
from tests.fakes.feishu_lines import Push


def visible(feishu: FakeFeishu, chat_id: str = "oc_1") -> list[Bubble]:
    return feishu.chat(chat_id).visible()


def said(feishu: FakeFeishu, chat_id: str = "oc_1") -> list[str]:
    return [bubble.text for bubble in visible(feishu, chat_id)]


def texts(inbox: MemoryInbox) -> list[str]:
    return [inbound.text for inbound, _ in inbox.taken]


async def done(*pushes: Push) -> None:
    """Wait until they are acknowledged for good, or given up."""
    async with asyncio.timeout(15):
        await asyncio.gather(*(push.done.wait() for push in pushes))


async def asked(feishu: FakeFeishu, inbox: MemoryInbox, chat_id: str = "oc_1") -> Turn:
    """Somebody writes; the run that begins."""
    await feishu.say(chat_id, "hello").done.wait()
    return await inbox.turn(len(inbox.taken))


async def shown(feishu: FakeFeishu, chat_id: str = "oc_1") -> tuple[Bubble, Card]:
    """The card of the chat, as soon as it is there."""
    await feishu.until(lambda: visible(feishu, chat_id))
    bubble = visible(feishu, chat_id)[-1]
    assert bubble.card is not None
    return bubble, bubble.card


async def written(feishu: FakeFeishu, bubble: Bubble, words: str) -> None:
    await feishu.until(lambda: words in bubble.text)


def stream(sink: RunSink, words: str, message_id: str = "m1") -> None:
    sink.emit(TextAdded(message_id, words))


def again(turn: Turn, inbox: MemoryInbox, index: int = -1) -> Turn:
    """The same run after a restart, with what was kept by then."""
    handle = inbox.kept[turn.run_id][index]
    return Turn(turn.session_id, turn.run_id, turn.chat, turn.reply_to, handle, turn.locale)
