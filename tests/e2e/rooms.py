"""A chat with a server's bot on a local platform, as the people in it see it on any platform."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from tests.e2e import dingtalk_chat, feishu_chat
from tests.e2e.process import Installation
from tests.fakes import dingtalk_world, feishu_chats
from tests.fakes.dingtalk import FakeDingTalk
from tests.fakes.feishu import BOT, FakeFeishu, serve_feishu

Kind = Literal["dingtalk", "feishu"]
Who = Literal["Alice", "Bob"]

_ENDINGS = ("", "---", "✅ 已完成", "🔔 通知", "☑ 已答复")
"""Lines that only say how a card stands, and how its parts are divided."""


@dataclass(frozen=True, slots=True)
class Button:
    """A button, which can be pressed later too, when the card has it no more."""

    words: str
    value: Mapping[str, Any]


class Card(Protocol):
    """A card, as it stands there now."""

    @property
    def words(self) -> str:
        """What it says, line by line."""

    @property
    def is_over(self) -> bool:
        """Nothing goes on there any more."""

    @property
    def buttons(self) -> Sequence[Button]:
        """What answers its questions."""


@dataclass(frozen=True, slots=True)
class Held:
    """A call of the bot that the platform does not answer yet."""

    met: Callable[[], Awaitable[object]]
    """Wait until the bot has made it."""
    release: Callable[[], None]
    """Let it and all later ones be answered."""


class Room(Protocol):
    """The chat."""

    kind: Kind

    @property
    def address(self) -> Mapping[str, str]:
        """The chat, as a task's delivery names it."""

    def asking(self, folder: Path, gateway_url: str, *, has_cards: bool = True) -> Installation:
        """A server on which people are asked before anything is written."""

    async def connected(self, count: int = 1) -> None:
        """Wait until so many long connections were opened, and one is there."""

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until *holds*; looked at after every change on the platform."""

    async def say(self, text: str, who: Who = "Alice") -> None:
        """Write to the bot, and see it acknowledged."""

    def cards(self) -> Sequence[Card]:
        """The bot's cards, in their order."""

    def messages(self) -> Sequence[str]:
        """What the bot wrote beside its cards."""

    async def press(self, card: Card, button: Button) -> str:
        """Press a button as Alice: what she is shown."""

    async def stop(self, card: Card) -> None:
        """Press the stop button."""

    async def unmarked(self) -> None:
        """Wait until no message has the bot's mark any more."""

    def expire(self) -> None:
        """Let days pass for what can be answered only for a while."""

    def hold_update(self, card: Card) -> Held:
        """Do not answer the next change of a card that is over."""

    def hold_post(self) -> Held:
        """Show the next card, but do not answer that it is there."""


@asynccontextmanager
async def open_room(kind: Kind, *, is_group: bool = False) -> AsyncIterator[Room]:
    """A chat with Alice and, in a group, Bob."""
    if kind == "dingtalk":
        async with dingtalk_chat.open_platform() as dingtalk:
            yield DingTalkRoom(dingtalk, is_group)
    else:
        async with serve_feishu() as feishu:
            feishu.names |= {"ou_alice": "Alice", "ou_bob": "Bob"}
            yield FeishuRoom(feishu, is_group)


async def ended(room: Room, count: int = 1) -> Sequence[Card]:
    """The cards, once there are so many and all are over."""
    await room.until(
        lambda: len(room.cards()) == count and all(card.is_over for card in room.cards())
    )
    return room.cards()


def button(card: Card, words: str, number: int = 0) -> Button:
    """The button with these words; of several, by its number from 0."""
    return [one for one in card.buttons if one.words.endswith(words)][number]


async def verdict_on(room: Room, card: Card, verdict: str) -> None:
    """Wait until the card says who answered, for good."""
    await room.until(lambda: card.words.endswith(f"☑ {verdict}"))
    assert card.is_over
    assert not card.buttons


def _words(text: str) -> str:
    return "\n".join(line for line in text.split("\n") if line.strip() not in _ENDINGS)


# --- DingTalk ---


@dataclass(frozen=True, slots=True)
class DingTalkCard:
    """An AI card."""

    card: dingtalk_world.Card

    @property
    def words(self) -> str:
        """See `Card`."""
        return _words(self.card.text)

    @property
    def is_over(self) -> bool:
        """See `Card`."""
        return self.card.is_over

    @property
    def buttons(self) -> Sequence[Button]:
        """See `Card`."""
        return [Button(words, value) for words, value in self.card.look.buttons.items()]


class DingTalkRoom:
    """See `Room`; without cards its bot has no template."""

    kind: Kind = "dingtalk"

    def __init__(self, platform: FakeDingTalk, is_group: bool) -> None:
        self._platform = platform
        self._is_group = is_group
        self._chat_id = dingtalk_chat.GROUP if is_group else dingtalk_chat.PRIVATE

    @property
    def address(self) -> Mapping[str, str]:
        """See `Room`."""
        app_id = self._platform.app.client_id
        return {"platform": self.kind, "appId": app_id, "chatId": self._chat_id}

    def asking(self, folder: Path, gateway_url: str, *, has_cards: bool = True) -> Installation:
        """See `Room`."""
        more = {} if has_cards else {"DINGTALK_CARD_TEMPLATE_ID": ""}
        config = _asking(folder, self.kind)
        return dingtalk_chat.installed(folder, gateway_url, self._platform, CONFIG=config, **more)

    async def connected(self, count: int = 1) -> None:
        """See `Room`."""
        await self._platform.connected(count)

    async def until(self, holds: Callable[[], bool]) -> None:
        """See `Room`."""
        await self._platform.until(holds, 60)

    async def say(self, text: str, who: Who = "Alice") -> None:
        """See `Room`."""
        bob = {"senderStaffId": "bob", "senderId": "$:bob", "senderNick": "Bob"}
        by = bob if who == "Bob" else {}
        words = f" {text}" if self._is_group else text  # the mention is cut out
        assert (await self._platform.say(words, group=self._is_group, **by)).code == 200

    def cards(self) -> Sequence[Card]:
        """See `Room`."""
        return [
            DingTalkCard(card)
            for card in self._platform.cards.values()
            if card.chat_id == self._chat_id
        ]

    def messages(self) -> Sequence[str]:
        """See `Room`."""
        return [_words(text) for text in self._platform.chat(self._chat_id)]

    async def press(self, card: Card, button: Button) -> str:
        """See `Room`."""
        action, params = button.value["actionId"], button.value["params"]
        ack = await self._platform.click(_dingtalk(card), action=action, params=params)
        assert ack.code == 200
        return str(ack.data["response"]["cardData"]["cardParamMap"]["note"])

    async def stop(self, card: Card) -> None:
        """See `Room`."""
        await self._platform.click(_dingtalk(card))

    async def unmarked(self) -> None:
        """See `Room`."""
        await self.until(lambda: not any(self._platform.emotions.values()))

    def expire(self) -> None:
        """See `Room`."""
        self._platform.dead_webhooks.update(self._platform.webhooks)

    def hold_update(self, card: Card) -> Held:
        """See `Room`."""
        path = "/v1.0/card/instances"
        script, before = self._platform.script(path), len(self._platform.called(path))
        gate = script.hold = asyncio.Event()

        def release() -> None:
            gate.set()
            script.hold = None

        return Held(lambda: self.until(lambda: len(self._platform.called(path)) > before), release)

    def hold_post(self) -> Held:
        """See `Room`."""
        script, before = self._platform.script("createAndDeliver"), len(self._platform.cards)
        gate = script.hold_answers = asyncio.Event()

        def release() -> None:
            gate.set()
            script.hold_answers = None

        return Held(lambda: self.until(lambda: len(self._platform.cards) > before), release)


def _dingtalk(card: Card) -> str:
    assert isinstance(card, DingTalkCard)
    return card.card.card_id


# --- Feishu ---


@dataclass(frozen=True, slots=True)
class FeishuCard:
    """A message that is a card."""

    bubble: feishu_chats.Bubble

    @property
    def words(self) -> str:
        """See `Card`."""
        return _words(self.bubble.text)

    @property
    def is_over(self) -> bool:
        """See `Card`."""
        return not self.bubble.is_typing

    @property
    def buttons(self) -> Sequence[Button]:
        """See `Card`."""
        return [Button(words, value) for words, value in self.bubble.pressable]


class FeishuRoom:
    """See `Room`; without cards its bot lacks the right to make them."""

    kind: Kind = "feishu"

    def __init__(self, platform: FakeFeishu, is_group: bool) -> None:
        self._platform = platform
        self._is_group = is_group
        self._chat_id = "oc_group" if is_group else feishu_chat.CHAT

    @property
    def address(self) -> Mapping[str, str]:
        """See `Room`."""
        return {"platform": self.kind, "appId": BOT, "chatId": self._chat_id}

    def asking(self, folder: Path, gateway_url: str, *, has_cards: bool = True) -> Installation:
        """See `Room`."""
        if not has_cards:
            self._platform.app().scopes.add("cardkit:card:write")
        config = _asking(folder, self.kind)
        return feishu_chat.installed(folder, gateway_url, self._platform, CONFIG=config)

    async def connected(self, count: int = 1) -> None:
        """See `Room`."""
        await feishu_chat.connected(self._platform, count)

    async def until(self, holds: Callable[[], bool]) -> None:
        """See `Room`."""
        await self._platform.until(holds)

    async def say(self, text: str, who: Who = "Alice") -> None:
        """See `Room`."""
        sender = f"ou_{who.lower()}"
        push = self._platform.say(self._chat_id, text, is_group=self._is_group, sender=sender)
        await push.done.wait()
        assert push.is_acked

    def cards(self) -> Sequence[Card]:
        """See `Room`."""
        return [FeishuCard(one) for one in feishu_chat.cards(self._platform, self._chat_id)]

    def messages(self) -> Sequence[str]:
        """See `Room`."""
        shown = feishu_chat.visible(self._platform, self._chat_id)
        return [_words(one.text) for one in shown if one.card is None]

    async def press(self, card: Card, button: Button) -> str:
        """See `Room`."""
        push = self._platform.click(_feishu(card), dict(button.value))
        await push.done.wait()
        assert push.acks == [200]
        return str(push.answer["toast"]["content"])

    async def stop(self, card: Card) -> None:
        """See `Room`."""
        await self._platform.press(_feishu(card), "停止").done.wait()

    async def unmarked(self) -> None:
        """See `Room`."""
        people = [
            one
            for one in self._platform.chat(self._chat_id).bubbles
            if one.sender.startswith("ou_")
        ]
        await self.until(lambda: not any(one.reactions for one in people))

    async def fill_in(self, card: Card, answer: str) -> None:
        """Write into the card's field and submit it, as Alice."""
        await self._platform.fill_in(_feishu(card), answer).done.wait()

    @property
    def replies(self) -> int:
        """How many of the bot's messages answer one of a person."""
        return sum(bool(one.parent_id) for one in self._shown())

    def refused(self, code: int) -> int:
        """How many of the bot's calls were refused with a code."""
        return sum(call.code == code for call in self._platform.calls)

    def expire(self) -> None:
        """See `Room`; nothing ends here."""

    def hold_update(self, card: Card) -> Held:
        """See `Room`."""
        shown = _feishu(card).card
        assert shown is not None
        gate = asyncio.Event()
        fault = self._platform.fail("PUT", f"/cards/{shown.card_id}", gate=gate)
        return Held(lambda: asyncio.wait_for(fault.met.wait(), 60), gate.set)

    def hold_post(self) -> Held:
        """See `Room`."""
        before = len(self._shown())
        self._platform.fail("POST", "/im/v1/messages", is_late=True, seconds=30.0)
        return Held(lambda: self.until(lambda: len(self._shown()) > before), lambda: None)

    def _shown(self) -> list[feishu_chats.Bubble]:
        return feishu_chat.visible(self._platform, self._chat_id)


def _feishu(card: Card) -> feishu_chats.Bubble:
    assert isinstance(card, FeishuCard)
    return card.bubble


def _asking(folder: Path, kind: Kind) -> str:
    """The file that says when people are asked."""
    config = folder / "headway.toml"
    config.write_text(f'[approvals]\n{kind} = "writes"\nweb = "never"\n', "utf-8")
    return str(config)
