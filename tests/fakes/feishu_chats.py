"""The chats and cards of the local Feishu, with the rules that the platform has for them."""

import asyncio
import json
import re
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any

CARD_BYTES_MAX = 30 * 1024
TEXT_BYTES_MAX = 150 * 1024
TABLES_MAX = 4
ELEMENTS_MAX = 200
CARD_OPERATIONS_PER_SECOND = 10
STREAM_SECONDS = 600.0
UUID_SECONDS = 3600.0

_TABLE = re.compile(r"^\s*\|?[ :|-]*-{3}[ :|-]*\|[ :|-]*$", re.MULTILINE)


class Refusal(Exception):
    """The platform says no."""

    def __init__(self, code: int, words: str = "", status: int = 400) -> None:
        super().__init__(code)
        self.code = code
        self.words = words or f"refused with {code}"
        self.status = status
        self.headers: dict[str, str] = {}


class Pace:
    """Refuses what comes more often than allowed."""

    def __init__(self, most: int, seconds: float, clock: Callable[[], float]) -> None:
        self._most = most
        self._seconds = seconds
        self._clock = clock
        self._times: deque[float] = deque()

    def is_exceeded(self) -> bool:
        """Count one more, unless it is one too many."""
        now = self._clock()
        while self._times and self._times[0] <= now - self._seconds:
            self._times.popleft()
        if len(self._times) >= self._most:
            return True
        self._times.append(now)
        return False


def check_card(card: dict[str, Any]) -> None:
    """Refuse what the platform would not show."""
    size = len(json.dumps(card, ensure_ascii=False).encode())
    if size > CARD_BYTES_MAX:
        raise Refusal(200860, "card too long")
    if card.get("schema") != "2.0" or "body" not in card:
        raise Refusal(230099, "Failed to create card content, ext=ErrCode: 200621; ErrMsg: parse")
    elements = list(elements_in(card))
    if len(elements) > ELEMENTS_MAX:
        raise Refusal(230099, "ext=ErrCode: 11310; ErrMsg: element exceeds the limit")
    for name in ("element_id", "name"):
        given = [element[name] for element in elements if name in element]
        if len(given) != len(set(given)):
            raise Refusal(230099, f"ext=ErrCode: 200623; ErrMsg: {name} is not unique")
    if any(len(element.get("element_id", "")) > 20 for element in elements):
        raise Refusal(230099, "ext=ErrCode: 200622; ErrMsg: element id")
    for form in (element for element in elements if element["tag"] == "form"):
        _check_form(form, card)
    if sum(_tables_in(element.get("content", "")) for element in elements) > TABLES_MAX:
        raise Refusal(230099, "ext=ErrCode: 11310; ErrMsg: card table number over limit")


def _check_form(form: dict[str, Any], card: dict[str, Any]) -> None:
    """A form stands at the root, can be submitted, and each of its parts has a name."""
    parts = form["elements"]
    is_at_root = any(element is form for element in card["body"]["elements"])
    is_named = all(part.get("name") for part in (form, *parts))
    if not (is_at_root and is_named and any("form_action_type" in part for part in parts)):
        raise Refusal(230099, "ext=ErrCode: 200624; ErrMsg: form")


def elements_in(card: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """All elements of a card, at whatever depth, in order."""
    waiting = list(card.get("body", {}).get("elements", []))
    while waiting:
        element = waiting.pop(0)
        yield element
        texts = [element["text"]] if "text" in element else []
        inside = element.get("elements", element.get("columns", []))
        waiting = [*texts, *inside, *waiting]


def _tables_in(text: str) -> int:
    outside = re.sub(r"```.*?(```|\Z)", "", text, flags=re.DOTALL)
    return len(_TABLE.findall(outside))


@dataclass
class Card:
    """A card entity as a person sees it now."""

    card_id: str
    app_id: str
    content: dict[str, Any]
    pace: Pace
    clock: Callable[[], float]
    sequence: int = 0
    sent: bool = False
    locked: bool = False
    """A click waits for its answer."""
    uuids: set[str] = field(default_factory=set)
    operations: list[str] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    """Every text the answer has had, in order."""
    stream_seconds: float = STREAM_SECONDS
    """After which the platform ends the typing by itself."""
    _opened_at: float = 0.0
    _told_over: bool = False

    def __post_init__(self) -> None:
        check_card(self.content)
        self._opened_at = self.clock()

    @property
    def is_streaming(self) -> bool:
        """Typing, as the person sees it."""
        is_on = bool(self.content.get("config", {}).get("streaming_mode"))
        return is_on and self.clock() - self._opened_at < self.stream_seconds

    @property
    def summary(self) -> str:
        """What the chat list says."""
        return str(self.content.get("config", {}).get("summary", {}).get("content", ""))

    async def lock_until(self, answered: asyncio.Event) -> None:
        """A click waits for its answer; until then nothing can be written."""
        self.locked = True
        await answered.wait()
        self.locked = False

    def element(self, element_id: str) -> dict[str, Any]:
        """An element by its id."""
        for element in self.content["body"]["elements"]:
            if element.get("element_id") == element_id:
                found: dict[str, Any] = element
                return found
        raise Refusal(300313, "element not found")

    def set_text(self, element_id: str, body: dict[str, Any]) -> None:
        """`PUT …/elements/:element_id/content`."""
        self._operate("text", body)
        if not self.is_streaming:
            code = 300309 if self._told_over else 200850
            self._told_over = True
            raise Refusal(code, "streaming mode is closed")
        self.element(element_id)["content"] = body["content"]
        check_card(self.content)
        self.texts.append(body["content"])

    def replace(self, body: dict[str, Any]) -> None:
        """`PUT` of the whole card."""
        content = json.loads(body["card"]["data"])
        check_card(content)
        self._operate("replace", body)
        self.content = content
        self._opened_at, self._told_over = self.clock(), False

    def settings(self, body: dict[str, Any]) -> None:
        """`PATCH …/settings`."""
        self._operate("settings", body)
        self.content["config"].update(json.loads(body["settings"]).get("config", {}))
        self._opened_at, self._told_over = self.clock(), False

    def _operate(self, kind: str, body: dict[str, Any]) -> None:
        if self.locked:
            raise Refusal(200810, "card is handling an action")
        if self.pace.is_exceeded():
            raise Refusal(230020, "too often")
        if body["uuid"] in self.uuids:
            raise Refusal(200770, "uuid was used")
        if body["sequence"] <= self.sequence:
            raise Refusal(300317, "sequence does not grow")
        self.sequence = body["sequence"]
        self.uuids.add(body["uuid"])
        self.operations.append(kind)


@dataclass
class Bubble:
    """A message in a chat as a person sees it."""

    message_id: str
    chat_id: str
    kind: str
    content: dict[str, Any]
    sender: str
    """An app id, or the open id of a person."""
    parent_id: str = ""
    in_thread: bool = False
    card: Card | None = None
    is_gone: bool = False
    reactions: dict[str, str] = field(default_factory=dict)
    """Emoji by reaction id, which begins with whom it is of."""
    mentions: list[tuple[str, str, str]] = field(default_factory=list)
    """Placeholder, open id and name of whom it names."""
    children: list["Bubble"] = field(default_factory=list)
    """The messages that a forward holds."""
    _reacted: int = 0

    def react(self, operator_id: str, emoji: str) -> str:
        """Add a reaction; its id."""
        self._reacted += 1
        reaction_id = f"{operator_id}:{self._reacted}"
        self.reactions[reaction_id] = emoji
        return reaction_id

    def unreact(self, operator_id: str, reaction_id: str) -> None:
        """Take a reaction away, which has to be one's own."""
        if reaction_id not in self.reactions or not reaction_id.startswith(f"{operator_id}:"):
            raise Refusal(231007, "not the operator of the reaction")
        del self.reactions[reaction_id]

    def reactions_of(self, emoji: str) -> list[dict[str, Any]]:
        """Who reacted so, as `GET …/reactions` tells it."""
        found = [one for one, is_like in self.reactions.items() if is_like == emoji]
        return [
            {
                "reaction_id": reaction_id,
                "operator": {
                    "operator_id": reaction_id.split(":")[0],
                    "operator_type": "app" if reaction_id.startswith("cli_") else "user",
                },
                "reaction_type": {"emoji_type": emoji},
            }
            for reaction_id in found
        ]

    @property
    def text(self) -> str:
        """All words of it."""
        if self.kind == "text":
            return str(self.content["text"])
        written = (one for one in self._elements if one["tag"] == "markdown")
        return "\n".join(one["content"] for one in written if one["content"])

    @property
    def buttons(self) -> list[dict[str, Any]]:
        """What can be pressed: the values that a click carries."""
        return [value for _, value in self.pressable]

    @property
    def labelled(self) -> dict[str, dict[str, Any]]:
        """The same by what stands on the button."""
        return dict(self.pressable)

    @property
    def forms(self) -> list[dict[str, Any]]:
        """What can be filled in."""
        return [one for one in self._elements if one["tag"] == "form"]

    @property
    def pressable(self) -> list[tuple[str, dict[str, Any]]]:
        """Words and value of each button, in their order."""
        buttons = [one for one in self._elements if one["tag"] == "button"]
        return [(one["text"]["content"], one["behaviors"][0]["value"]) for one in buttons]

    @property
    def _elements(self) -> list[dict[str, Any]]:
        return list(elements_in(self.card.content if self.card else self.content))

    @property
    def is_typing(self) -> bool:
        """A card that streams."""
        return self.card is not None and self.card.is_streaming


def items_of(
    bubble: Bubble, names: dict[str, str], upper: str = "", *, is_card_whole: bool = False
) -> list[dict[str, Any]]:
    """A message as `GET …/messages/:id` gives it, and after it all that it holds."""
    if is_card_whole and bubble.kind == "merge_forward":
        raise Refusal(300000, "internal error", 500)
    sender = {"id": bubble.sender, "id_type": "open_id", "sender_type": "user"}
    if bubble.sender in names:
        sender["sender_name"] = names[bubble.sender]
    item = {
        "message_id": bubble.message_id,
        "msg_type": bubble.kind,
        "create_time": "1760000000000",
        "deleted": bubble.is_gone,
        "sender": sender,
        "body": {"content": _content_of(bubble, is_card_whole)},
        "mentions": [
            {"key": key, "id": open_id, "id_type": "open_id", "name": name}
            for key, open_id, name in bubble.mentions
        ],
    }
    if upper:
        item["upper_message_id"] = upper
    held = [one for child in bubble.children for one in items_of(child, names, bubble.message_id)]
    return [item, *held]


def person(open_id: str, names: dict[str, str], missing_scopes: set[str]) -> dict[str, str]:
    """Somebody as `GET …/users/:user_id` tells who it is."""
    if "contact:contact.base:readonly" in missing_scopes:
        words = "One of the following scopes is required: [contact:contact.base:readonly]"
        raise Refusal(99991672, words)
    is_named = open_id in names and "contact:user.base:readonly" not in missing_scopes
    return {"open_id": open_id} | ({"name": names[open_id]} if is_named else {})


def _content_of(bubble: Bubble, is_card_whole: bool) -> str:
    if bubble.kind == "merge_forward":
        return "Merged and Forwarded Message"
    content = bubble.card.content if bubble.card else bubble.content
    if bubble.kind == "interactive" and not is_card_whole:
        content = extract(content)
    return json.dumps(content, ensure_ascii=False)


def extract(card: dict[str, Any]) -> dict[str, Any]:
    """What is given of a card to whoever does not ask for all of it: of schema 2.0 nothing."""
    told = "".join(one["content"] for one in elements_in(card) if one["tag"] == "markdown")
    shown: list[dict[str, Any]] = [{"tag": "text", "text": told}]
    if card.get("schema") == "2.0":
        words = "请升级至最新版本客户端，以查看内容"
        shown = [{"tag": "img", "image_key": "img_old"}, {"tag": "text", "text": words}]
    return {"title": None, "elements": [shown]}


class Chat:
    """What stands in one conversation."""

    def __init__(self, chat_id: str, clock: Callable[[], float]) -> None:
        self.chat_id = chat_id
        self.bubbles: list[Bubble] = []
        self.pace = Pace(5, 1.0, clock)
        self.closed_with: int | None = None
        """The code that everything into this chat is refused with."""

    def visible(self) -> list[Bubble]:
        """What apps wrote here, in order, as a person sees it now."""
        return [one for one in self.bubbles if one.sender.startswith("cli_") and not one.is_gone]


class Tenant:
    """All chats, messages and cards."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.chats: dict[str, Chat] = {}
        self.bubbles: dict[str, Bubble] = {}
        self.cards: dict[str, Card] = {}
        self.stream_seconds = STREAM_SECONDS
        """Of cards that are made from now on."""
        self._uuids: dict[str, tuple[float, str]] = {}
        self._numbers = count(1)

    def new_id(self, prefix: str) -> str:
        """An id that nothing else has."""
        return f"{prefix}_{next(self._numbers)}"

    def forget_uuids(self) -> None:
        """As after an hour."""
        self._uuids.clear()

    def chat(self, chat_id: str) -> Chat:
        """A conversation, made when first asked for."""
        if chat_id not in self.chats:
            self.chats[chat_id] = Chat(chat_id, self.clock)
        return self.chats[chat_id]

    def add(self, bubble: Bubble) -> Bubble:
        """Put a message into its chat."""
        self.bubbles[bubble.message_id] = bubble
        self.chat(bubble.chat_id).bubbles.append(bubble)
        return bubble

    def bubble(self, message_id: str) -> Bubble:
        """A message that is still there."""
        found = self.bubbles.get(message_id)
        if found is None or found.is_gone:
            raise Refusal(230011, "The message was withdrawn.")
        return found

    def post(self, app_id: str, chat_id: str, body: dict[str, Any], parent_id: str = "") -> str:
        """Send or reply; the same `uuid` within an hour posts nothing more."""
        key, now = body.get("uuid", ""), self.clock()
        if key and key in self._uuids and now - self._uuids[key][0] < UUID_SECONDS:
            return self._uuids[key][1]
        chat = self.chat(chat_id)
        if chat.closed_with is not None:
            raise Refusal(chat.closed_with)
        if chat.pace.is_exceeded():
            raise Refusal(230020, "too often to this chat")
        content = json.loads(body["content"])
        bubble = Bubble(
            self.new_id("om_bot"), chat_id, body["msg_type"], content, app_id, parent_id
        )
        bubble.in_thread = bool(body.get("reply_in_thread"))
        self._check(bubble, app_id)
        self.add(bubble)
        if key:
            self._uuids[key] = (now, bubble.message_id)
        return bubble.message_id

    def _check(self, bubble: Bubble, app_id: str) -> None:
        if bubble.kind != "interactive":
            if len(json.dumps(bubble.content, ensure_ascii=False).encode()) > TEXT_BYTES_MAX:
                raise Refusal(230025, "too long")
            return
        if bubble.content.get("type") != "card":
            check_card(bubble.content)
            return
        card = self.card(bubble.content["data"]["card_id"], app_id)
        if card.sent:
            raise Refusal(230099, "ext=ErrCode: 11311; ErrMsg: card was sent")
        card.sent = True
        bubble.card = card

    def create_card(self, app_id: str, body: dict[str, Any]) -> str:
        """A card that nobody sees yet."""
        card_id = self.new_id("card")
        pace = Pace(CARD_OPERATIONS_PER_SECOND, 1.0, self.clock)
        card = Card(card_id, app_id, json.loads(body["data"]), pace, self.clock)
        card.stream_seconds = self.stream_seconds
        self.cards[card_id] = card
        return card_id

    def card(self, card_id: str, app_id: str) -> Card:
        """A card of that app."""
        card = self.cards.get(card_id)
        if card is None or card.app_id != app_id:
            raise Refusal(200740, "no such card")
        return card
