"""What exists on the local DingTalk: chats, cards, tokens, files, and who may do what."""

import asyncio
import json
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

TEXT_BYTES = 20_000
WEBHOOK_PER_MINUTE = 20
WEBHOOK_PAUSE_SECONDS = 600.0
TOKEN_SECONDS = 7200
DEFAULT_VARIABLES = frozenset({"content", "state", "note", "stoppable", "btns", "flowStatus"})


@dataclass(frozen=True, slots=True)
class Call:
    """A request as it came in."""

    method: str
    path: str
    body: Any
    at: float
    """By the clock of the event loop."""
    status: int = 0
    answer: Any = None


@dataclass(frozen=True, slots=True)
class Look:
    """A card as its reader sees it at one instant."""

    params: Mapping[str, str]
    flow: str
    at: float
    """Seconds, on the platform's clock."""

    @property
    def text(self) -> str:
        """The streamed variable."""
        return self.params.get("content", "")

    @property
    def is_over(self) -> bool:
        """It spins no more."""
        return self.flow in ("3", "5")

    @property
    def has_button(self) -> bool:
        """The stop button can be pressed."""
        return self.params.get("stoppable") == "true"

    @property
    def buttons(self) -> Mapping[str, Mapping[str, Any]]:
        """What the group of buttons sends, by what stands on them; it is shown when all is over."""
        group = json.loads(self.params.get("btns") or "[]") if self.flow == "3" else []
        assert all(button["event"]["type"] == "sendCardRequest" for button in group)
        return {button["text"]: button["event"]["params"] for button in group}


@dataclass(slots=True)
class Card:
    """A card with all that it ever looked like."""

    card_id: str
    chat_id: str
    template_id: str
    looks: list[Look]
    """In order, from its creation; one for each change."""

    @property
    def look(self) -> Look:
        """As it is now."""
        return self.looks[-1]

    @property
    def params(self) -> Mapping[str, str]:
        """The variables of its template."""
        return self.look.params

    @property
    def flow(self) -> str:
        """The platform's `flowStatus`."""
        return self.look.flow

    @property
    def text(self) -> str:
        """The streamed variable."""
        return self.look.text

    @property
    def is_over(self) -> bool:
        """It spins no more."""
        return self.look.is_over

    @property
    def seen(self) -> list[str]:
        """Every text it showed, in order."""
        texts = [look.text for look in self.looks]
        return [
            text for number, text in enumerate(texts) if number == 0 or text != texts[number - 1]
        ]


@dataclass(slots=True)
class App:
    """One bot's app."""

    client_id: str
    client_secret: str
    templates: dict[str, frozenset[str]] = field(
        default_factory=lambda: {"template.schema": DEFAULT_VARIABLES}
    )
    """Published templates and their variables."""
    scopes: set[str] = field(
        default_factory=lambda: {"Card.Instance.Write", "Card.Streaming.Write", "qyapi_robot"}
    )


@dataclass(frozen=True, slots=True)
class Refusal:
    """What a call is answered instead of being done."""

    status: int
    body: Mapping[str, Any]
    headers: Mapping[str, str] = field(default_factory=dict)


def api_refusal(status: int, code: str, message: str = "") -> Refusal:
    """A refusal in the words of the OpenAPI."""
    return Refusal(status, {"code": code, "message": message or code, "requestid": "r1"})


def oapi(errcode: int, errmsg: str = "ok", **more: Any) -> Refusal:
    """An answer of the old face; it always has HTTP 200."""
    return Refusal(200, {"errcode": errcode, "errmsg": errmsg, **more})


QPS_REFUSAL = api_refusal(403, "Forbidden.AccessDenied.QpsLimitForAppkeyAndApi")
BAD_TOKEN = api_refusal(400, "InvalidAuthentication", "不合法的access_token")


class World:
    """The platform's memory and its rules; knows no socket."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.apps: dict[str, App] = {}
        self.chats: dict[str, list[str]] = {}
        """Texts as people see them, by conversation; cards are not among them."""
        self.cards: dict[str, Card] = {}
        self.deliveries: list[str] = []
        """Ids of the cards in the order in which they appeared in a chat."""
        self.webhooks: dict[str, str] = {}
        """Conversation by session."""
        self.dead_webhooks: set[str] = set()
        self.people: dict[str, str] = {}
        """Conversation with the bot alone, by staff id."""
        self.groups: set[str] = set()
        self.emotions: dict[str, list[str]] = {}
        """By message id."""
        self.withdrawn: set[str] = set()
        """Ids of messages that their people took back."""
        self.files: dict[str, tuple[bytes, str]] = {}
        self.calls_per_second = 20
        self.freezes_finished_cards = False
        """A text for a card that is over is refused; whether it is in truth, nobody knows."""
        self.refuses_streams: Refusal | None = None
        """What every streamed text is answered; a card's variables can still be set."""
        self.forbidden_words: set[str] = set()
        """A card's text that holds one of them is refused, whichever way it comes."""
        self._clock = clock
        self._tokens: dict[str, tuple[str, float]] = {}
        self._turns: dict[tuple[str, str], deque[float]] = {}
        self._webhook_turns: dict[str, deque[float]] = {}
        self._webhook_closed: dict[str, float] = {}
        self._token_number = 0

    def issue_token(self, body: Any) -> Refusal:
        """Answer of `/v1.0/oauth2/accessToken`."""
        app = self.apps.get(str(body.get("appKey")))
        if app is None or app.client_secret != body.get("appSecret"):
            return api_refusal(400, "invalidClientIdOrSecret")
        self._token_number += 1
        token = f"at-{self._token_number}"
        self._tokens[token] = (app.client_id, self._clock() + TOKEN_SECONDS)
        return Refusal(200, {"accessToken": token, "expireIn": TOKEN_SECONDS})

    def expire_tokens(self) -> None:
        """Make every token a bad one."""
        self._tokens.clear()

    def admit(self, token: str, path: str, scope: str | None) -> App | Refusal:
        """The app that calls, unless it may not, or calls too often."""
        client_id, until = self._tokens.get(token, ("", 0.0))
        if until <= self._clock():
            return BAD_TOKEN
        app = self.apps[client_id]
        if scope is not None and scope not in app.scopes:
            return api_refusal(403, "Forbidden.AccessDenied.AccessTokenPermissionDenied", scope)
        turns = self._turns.setdefault((client_id, path), deque())
        if not self._take(turns, self.calls_per_second, 1.0):
            return QPS_REFUSAL
        return app

    def send_webhook(self, session: str, body: Any) -> Refusal:
        """Answer of `/robot/sendBySession`."""
        chat_id = self.webhooks.get(session)
        if chat_id is None or session in self.dead_webhooks:
            return oapi(300001, "session 不存在")
        if self._webhook_closed.get(chat_id, 0.0) > self._clock():
            return oapi(130101, "send too fast, exceed 20 times per minute")
        if not self._take(
            self._webhook_turns.setdefault(chat_id, deque()), WEBHOOK_PER_MINUTE, 60.0
        ):
            self._webhook_closed[chat_id] = self._clock() + WEBHOOK_PAUSE_SECONDS
            return oapi(130101, "send too fast, exceed 20 times per minute")
        message = body.get("markdown") or body.get("text") or {}
        if body.get("msgtype") == "markdown" and not message.get("title"):
            return oapi(40035, "缺少参数 title")
        text = message.get("text") or message.get("content") or ""
        return self._show(chat_id, text)

    def send_people(self, body: Any) -> Refusal:
        """Answer of `/v1.0/robot/oToMessages/batchSend`: HTTP 200 though nobody got it."""
        unknown = [person for person in body["userIds"] if person not in self.people]
        for person in body["userIds"]:
            if person in self.people:
                self._show(self.people[person], _message_text(body))
        lists = {"invalidStaffIdList": unknown, "flowControlledStaffIdList": []}
        return Refusal(200, {"processQueryKey": "q1", **lists})

    def send_group(self, body: Any) -> Refusal:
        """Answer of `/v1.0/robot/groupMessages/send`."""
        chat_id = body.get("openConversationId")
        if chat_id not in self.groups:
            return api_refusal(400, "invalidParameter.openConversationId.invalid")
        self._show(chat_id, _message_text(body))
        return Refusal(200, {"processQueryKey": "q1"})

    def make_card(self, app: App, body: Any, chat_id: str = "") -> Refusal:
        """Answer of `/v1.0/card/instances`: a card that nobody sees yet."""
        if body["cardTemplateId"] not in app.templates:
            return api_refusal(400, "param.templateUnpublished")
        params = body["cardData"]["cardParamMap"]
        if not all(isinstance(value, str) for value in params.values()):
            return api_refusal(400, "param.cardParamMap")
        if refused := self._judge(params.get("content", "")):
            return refused
        card_id, template_id = body["outTrackId"], body["cardTemplateId"]
        look = Look(_known(app, template_id, params), params.get("flowStatus", "1"), self._clock())
        self.cards[card_id] = Card(card_id, chat_id, template_id, [look])
        return Refusal(200, {"success": True, "result": card_id})

    def create_card(self, app: App, body: Any) -> Refusal:
        """Answer of `/v1.0/card/instances/createAndDeliver`."""
        space, _, target = body["openSpaceId"].removeprefix("dtv1.card//").partition(".")
        if space == "IM_GROUP":
            chat_id = target if target in self.groups else None
        else:
            chat_id = self.people.get(target)
        card_id = body["outTrackId"]
        if chat_id is None:
            return self._delivered(card_id, "spaces of card is empty")
        made = self.make_card(app, body, chat_id)
        if made.status != 200:
            return made
        self.deliveries.append(card_id)
        return self._delivered(card_id, None)

    def stream_card(self, app: App, body: Any) -> Refusal:
        """Answer of `/v1.0/card/streaming`."""
        card = self.cards.get(body["outTrackId"])
        if card is None:
            return api_refusal(400, "param.outTrackId.notExist")
        if body["key"] not in app.templates[card.template_id]:
            return api_refusal(500, "unknownError")
        if card.is_over and self.freezes_finished_cards:
            return api_refusal(400, "param.card.finished")
        if self.refuses_streams is not None:
            return self.refuses_streams
        if refused := self._judge(body["content"]):
            return refused
        flow = "5" if body["isError"] else "3" if body["isFinalize"] else "2"
        self._turn_into(card, {**card.params, body["key"]: body["content"]}, flow)
        return Refusal(200, {"success": True, "result": True})

    def update_card(self, app: App, body: Any) -> Refusal:
        """Answer of `/v1.0/card/instances`; what is no variable of the template is left out."""
        card = self.cards.get(body["outTrackId"])
        if card is None:
            return api_refusal(400, "param.outTrackId.notExist")
        params = _known(app, card.template_id, body["cardData"]["cardParamMap"])
        if refused := self._judge(params.get("content", "")):
            return refused
        if body.get("cardUpdateOptions", {}).get("updateCardDataByKey"):
            params = {**card.params, **params}
        flow = body["cardData"]["cardParamMap"].get("flowStatus", card.flow)
        self._turn_into(card, params, flow)
        return Refusal(200, {"success": True, "result": True})

    def react(self, body: Any, *, remove: bool) -> Refusal:
        """Answer of `/v1.0/robot/emotion/…`."""
        if body["openMsgId"] in self.withdrawn:
            return api_refusal(400, "invalidParameter.openMsgId")
        shown = self.emotions.setdefault(body["openMsgId"], [])
        if remove and body["emotionName"] in shown:
            shown.remove(body["emotionName"])
        elif not remove:
            shown.append(body["emotionName"])
        return Refusal(200, {"success": True})

    def _judge(self, content: str) -> Refusal | None:
        """Why a card may not show *content*, if it may not."""
        if len(content.encode()) > TEXT_BYTES:
            return api_refusal(400, "param.content.tooLong")
        if any(word in content for word in self.forbidden_words):
            return api_refusal(400, "invalidParameter.content")
        return None

    def _turn_into(self, card: Card, params: Mapping[str, str], flow: str) -> None:
        card.looks.append(Look(params, flow, self._clock()))

    def _delivered(self, card_id: str, error: str | None) -> Refusal:
        result = {"success": error is None, "errorMsg": error or "", "spaceType": "IM"}
        body = {"outTrackId": card_id, "deliverResults": [result]}
        return Refusal(200, {"success": True, "result": body})

    def _show(self, chat_id: str, text: str) -> Refusal:
        if len(text.encode()) > TEXT_BYTES:
            return oapi(460101, "message too long")
        self.chats.setdefault(chat_id, []).append(text)
        return oapi(0)

    def _take(self, turns: deque[float], most: int, seconds: float) -> bool:
        now = self._clock()
        while turns and turns[0] <= now - seconds:
            turns.popleft()
        if len(turns) >= most:
            return False
        turns.append(now)
        return True


def _known(app: App, template_id: str, params: Mapping[str, str]) -> dict[str, str]:
    variables = app.templates[template_id]
    return {name: value for name, value in params.items() if name in variables}


def _message_text(body: Any) -> str:
    param = json.loads(body["msgParam"])
    text: str = param.get("text") or param.get("content") or ""
    return text


@dataclass(slots=True)
class Script:
    """Refusals that wait for the calls of one path, and how long its calls are held."""

    refusals: deque[Refusal] = field(default_factory=deque)
    hold: asyncio.Event | None = None
    """Calls wait for it before they are done."""
    drops: int = 0
    """So many calls are done, and their answers lost."""
    hold_answers: asyncio.Event | None = None
    """Calls are done, and their answers wait for it."""


def paths(calls: Sequence[Call], ending: str) -> list[Call]:
    """Those of *calls* whose path ends so."""
    return [call for call in calls if call.path.endswith(ending)]
