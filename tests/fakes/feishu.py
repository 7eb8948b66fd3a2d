"""A local Feishu on a real port: HTTP calls, long connections, chats and cards with their rules.

    async with serve_feishu() as feishu:
        ...  # a bot of `feishu.app("cli_test")` with domain `feishu.url`
        await feishu.app("cli_test").lines.until_live()
        push = feishu.say("oc_1", "hello")
        await push.done.wait()
        assert feishu.chat("oc_1").visible()[0].text

As a process: `python -m tests.fakes.feishu --port 0`; then `POST /fake/say` with chat_id and text,
and `GET /fake/chats`.
"""

import argparse
import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from typing import Any
from urllib.parse import quote

from aiohttp import web

from tests.fakes.feishu_calls import Call, Fault, written
from tests.fakes.feishu_chats import Bubble, Chat, Pace, Refusal, Tenant, items_of, person
from tests.fakes.feishu_lines import Lines, Push

BOT = "cli_test"
SECRET = "secret-of-cli_test"
API_PER_SECOND = 50
WAIT_SECONDS = 20
LOOK_SECONDS = 0.02


@dataclass
class App:
    """A bot that somebody made in the console."""

    app_id: str
    secret: str
    open_id: str
    lines: Lines = field(default_factory=Lines)
    discovery: dict[str, Any] | None = None
    """What discovery answers instead of an address."""
    tokens: dict[str, float] = field(default_factory=dict)
    """When each ends."""
    token_seconds: int = 7200
    tokens_given: int = 0
    scopes: set[str] = field(default_factory=set)
    """Those that are missing."""


class FakeFeishu:
    """The platform: what it was asked, and what its people see."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.url = ""
        self.clock = clock
        self.tenant = Tenant(clock)
        self.apps: dict[str, App] = {}
        self.calls: list[Call] = []
        self.faults: list[Fault] = []
        self.resources: dict[str, tuple[bytes, str, str]] = {}
        """Content, name and media type by key."""
        self.names: dict[str, str] = {}
        """Of people by their open id, told only to who asks for names."""
        self.asked = asyncio.Condition()
        self._paces: dict[str, Pace] = {}
        self._events = count(1)
        self._clicks: set[asyncio.Task[None]] = set()
        self.app(BOT)

    # What people and operators do

    def app(self, app_id: str = BOT) -> App:
        """A bot, made when first asked for."""
        if app_id not in self.apps:
            open_id = "ou_bot" if app_id == BOT else f"ou_bot_{app_id}"
            self.apps[app_id] = App(app_id, f"secret-of-{app_id}", open_id)
        return self.apps[app_id]

    def chat(self, chat_id: str) -> Chat:
        """A conversation."""
        return self.tenant.chat(chat_id)

    def fail(self, method: str, path: str, code: int | None = None, **how: Any) -> Fault:
        """Let calls go wrong: with a code, or as `Fault` says."""
        if code is not None:
            how["body"] = {"code": code, "msg": how.pop("msg", "refused")}
        fault = Fault(method, path, **how)
        self.faults.append(fault)
        return fault

    def say(
        self,
        chat_id: str,
        text: str,
        *,
        app_id: str = BOT,
        is_group: bool = False,
        **changes: Any,
    ) -> Push:
        """A person writes to the bot; in a group the text begins with a mention of it."""
        app = self.app(app_id)
        text = f"@_user_1 {text}" if is_group else text
        event = self.message_event(chat_id, "text", {"text": text}, app, is_group, **changes)
        return self.send(event)

    def message_event(
        self,
        chat_id: str,
        kind: str,
        content: Any,
        app: App | None = None,
        is_group: bool = False,
        *,
        sender: str = "ou_alice",
        age_seconds: float = 0.0,
        message_id: str = "",
        **changes: Any,
    ) -> dict[str, Any]:
        """The event of a new message, which then stands in the chat."""
        app = app or self.app()
        message_id = message_id or self.tenant.new_id("om")
        told_at = str(int((time.time() - age_seconds) * 1000))
        mention = {"key": "@_user_1", "id": {"open_id": app.open_id}, "name": "Bot"}
        message = {
            "message_id": message_id,
            "create_time": told_at,
            "chat_id": chat_id,
            "chat_type": "group" if is_group else "p2p",
            "message_type": kind,
            "content": content if isinstance(content, str) else json.dumps(content),
            "mentions": [mention] if is_group else [],
            **changes,
        }
        shown = content if isinstance(content, dict) else {"text": content}
        self.tenant.add(Bubble(message_id, chat_id, kind, shown, sender))
        sent_by = {
            "sender_id": {"open_id": sender, "union_id": f"on_{sender}"},
            "sender_type": "user",
        }
        return self._event(
            app, "im.message.receive_v1", told_at, {"sender": sent_by, "message": message}
        )

    def send(self, event: dict[str, Any], **how: Any) -> Push:
        """Push an event to its app."""
        return self.app(event["header"]["app_id"]).lines.push(event, **how)

    def click(
        self,
        bubble: Bubble,
        value: dict[str, Any],
        sender: str = "ou_alice",
        written: dict[str, str] | None = None,
    ) -> Push:
        """Press a button: until it is answered the card cannot be written to.

        *written* is what stands in the form of which the button is.
        """
        push = self.send(self.click_event(bubble, value, sender, written), again=False)
        if bubble.card is not None:
            unlocking = asyncio.create_task(bubble.card.lock_until(push.done), name="click")
            self._clicks.add(unlocking)
            unlocking.add_done_callback(self._clicks.discard)
        return push

    def press(self, bubble: Bubble, words: str, sender: str = "ou_alice") -> Push:
        """Press the button on which these words stand."""
        return self.click(bubble, bubble.labelled[words], sender)

    def fill_in(self, bubble: Bubble, answer: str, sender: str = "ou_alice") -> Push:
        """Write into the one form of a card that is not over, and submit it."""
        [form] = bubble.forms
        field, submit = form["elements"]
        value = submit["behaviors"][0]["value"]
        return self.click(bubble, value, sender, {field["name"]: answer})

    def click_event(
        self,
        bubble: Bubble,
        value: dict[str, Any],
        sender: str = "ou_alice",
        written: dict[str, str] | None = None,
    ) -> dict[str, Any]:
        """The event of a pressed button."""
        pressed: dict[str, Any] = {"tag": "button", "value": value}
        if written is not None:
            pressed |= {"name": "submit", "form_value": written}
        action = {
            "operator": {"open_id": sender, "union_id": f"on_{sender}"},
            "token": "c-1",
            "action": pressed,
            "context": {"open_message_id": bubble.message_id, "open_chat_id": bubble.chat_id},
        }
        told_at = str(int(time.time() * 1000))
        return self._event(self.app(bubble.sender), "card.action.trigger", told_at, action)

    def withdraw(self, message_id: str) -> Push:
        """A person takes their message back; the bot is told."""
        bubble = self.tenant.bubble(message_id)
        bubble.is_gone = True
        told_at = str(int(time.time() * 1000))
        gone = {
            "message_id": message_id,
            "chat_id": bubble.chat_id,
            "recall_time": told_at,
            "recall_type": "message_owner",
        }
        return self.send(self._event(self.app(), "im.message.recalled_v1", told_at, gone))

    def _event(self, app: App, kind: str, told_at: str, event: dict[str, Any]) -> dict[str, Any]:
        header = {
            "event_id": f"ev_{next(self._events)}",
            "event_type": kind,
            "create_time": told_at,
            "token": "vt_1",
            "app_id": app.app_id,
            "tenant_key": "tk_1",
        }
        return {"schema": "2.0", "header": header, "event": event}

    async def until(self, holds: Callable[[], Any]) -> None:
        """Wait until *holds*; looked at after each call, and often besides."""
        async with asyncio.timeout(WAIT_SECONDS), self.asked:
            while not holds():
                with suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_SECONDS):
                        await self.asked.wait()

    def called(self, method: str, path: str) -> list[Call]:
        """The calls whose path contains *path*."""
        return [one for one in self.calls if one.method == method and path in one.path]

    # What bots ask

    def routes(self) -> web.Application:
        """The platform as an application."""
        app = web.Application(client_max_size=64 * 2**20)
        app.router.add_get("/ws", self._line)
        app.router.add_get("/fake/chats", self._chats)
        app.router.add_post("/fake/say", self._say)
        app.router.add_route("*", "/{path:.*}", self._answer)
        return app

    async def _line(self, request: web.Request) -> web.StreamResponse:
        app = self.apps[request.query["ticket"].removeprefix("k-")]
        return await app.lines.serve(request)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        raw = await request.read()
        body = json.loads(raw) if raw.startswith(b"{") else {}
        late = self._fault_of(request, is_late=True)
        answer = await self._faulty(request)
        code = 0
        if answer is None:
            try:
                answer = await self._ask(request, body)
            except Refusal as refusal:
                code = refusal.code
                answer = web.json_response(
                    {"code": code, "msg": refusal.words},
                    status=refusal.status,
                    headers=refusal.headers,
                )
        elif answer.status != 200:
            code = answer.status
        self._note(request, body, code)
        async with self.asked:
            self.asked.notify_all()
        if late is not None:
            await asyncio.sleep(late.seconds)
            return written(late) or answer
        return answer

    def _note(self, request: web.Request, body: dict[str, Any], code: int) -> None:
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        self.calls.append(
            Call(
                request.method,
                request.path,
                dict(request.query),
                body,
                token,
                asyncio.get_running_loop().time(),
                code,
            )
        )

    def _fault_of(self, request: web.Request, *, is_late: bool) -> Fault | None:
        fits = (one for one in self.faults if one.is_late is is_late and one.fits(request))
        fault = next(fits, None)
        if fault is not None:
            fault.times -= 1
            fault.met.set()
        return fault

    async def _faulty(self, request: web.Request) -> web.StreamResponse | None:
        fault = self._fault_of(request, is_late=False)
        if fault is None:
            return None
        await asyncio.sleep(fault.seconds)
        if fault.gate is not None:
            await fault.gate.wait()
        return written(fault)

    async def _ask(self, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        path = request.path.removeprefix("/open-apis")
        if path == "/callback/ws/endpoint":
            return self._discovered(body)
        if path == "/auth/v3/tenant_access_token/internal":
            return self._token(body)
        app = self._app_of(request)
        self._throttle(request.method, path)
        match request.method, path.strip("/").split("/"):
            case "GET", ["bot", "v3", "info"]:
                return web.json_response({"code": 0, "bot": {"open_id": app.open_id}})
            case "GET", ["contact", "v3", "users", open_id]:
                return _ok({"user": person(open_id, self.names, app.scopes)})
            case "GET", ["application", "v6", "scopes"]:
                return _ok({"scopes": _scopes(app)})
            case method, ["im", "v1", "messages", *rest]:
                return self._messages(method, rest, request, body, app)
            case method, ["cardkit", "v1", "cards", *rest]:
                return self._cards(method, rest, body, app)
        raise Refusal(99992402, f"no such call: {request.method} {path}", 404)

    def _discovered(self, body: dict[str, Any]) -> web.StreamResponse:
        app = self.apps.get(body["AppID"])
        if app is None or app.secret != body["AppSecret"]:
            return web.json_response({"code": 1000040345, "msg": "app secret invalid"})
        if app.discovery is not None:
            return web.json_response(app.discovery)
        host = self.url.removeprefix("http")
        settings = {
            "ReconnectCount": -1,
            "ReconnectInterval": 1,
            "ReconnectNonce": 1,
            "PingInterval": app.lines.ping_seconds,
        }
        url = f"ws{host}/ws?device_id=d1&service_id=1&ticket=k-{app.app_id}"
        return _ok({"URL": url, "ClientConfig": settings})

    def _token(self, body: dict[str, Any]) -> web.StreamResponse:
        app = self.apps.get(body["app_id"])
        if app is None:
            raise Refusal(10003, "invalid app_id")
        if app.secret != body["app_secret"]:
            raise Refusal(10014, "app secret invalid")
        app.tokens_given += 1
        token = f"t-{app.app_id}-{app.tokens_given}"
        app.tokens[token] = self.clock() + app.token_seconds
        return web.json_response(
            {"code": 0, "tenant_access_token": token, "expire": app.token_seconds}
        )

    def _app_of(self, request: web.Request) -> App:
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        for app in self.apps.values():
            if app.tokens.get(token, 0) > self.clock():
                return app
        raise Refusal(99991663, "Invalid access token")

    def _throttle(self, method: str, path: str) -> None:
        api = f"{method} {'/'.join(path.split('/')[:5])}"
        pace = self._paces.setdefault(api, Pace(API_PER_SECOND, 1.0, self.clock))
        if pace.is_exceeded():
            refusal = Refusal(99991400, "request trigger frequency limit", 429)
            refusal.headers["x-ogw-ratelimit-reset"] = "1"
            raise refusal

    def _messages(
        self, method: str, rest: list[str], request: web.Request, body: dict[str, Any], app: App
    ) -> web.StreamResponse:
        match method, rest:
            case "POST", []:
                chat_id = body["receive_id"]
                return _ok({"message_id": self.tenant.post(app.app_id, chat_id, body)})
            case "POST", [message_id, "reply"]:
                chat_id = self.tenant.bubble(message_id).chat_id
                posted = self.tenant.post(app.app_id, chat_id, body, message_id)
                return _ok({"message_id": posted})
            case "GET", [message_id]:
                names = self.names if request.query.get("with_sender_name") == "true" else {}
                is_whole = request.query.get("card_msg_content_type") == "user_card_content"
                bubble = self.tenant.bubble(message_id)
                return _ok({"items": items_of(bubble, names, is_card_whole=is_whole)})
            case "POST", [message_id, "reactions"]:
                emoji = body["reaction_type"]["emoji_type"]
                reaction_id = self.tenant.bubble(message_id).react(app.app_id, emoji)
                return _ok({"reaction_id": reaction_id})
            case "GET", [message_id, "reactions"]:
                emoji = request.query["reaction_type"]
                return _ok({"items": self.tenant.bubble(message_id).reactions_of(emoji)})
            case "DELETE", [message_id, "reactions", reaction_id]:
                self.tenant.bubble(message_id).unreact(app.app_id, reaction_id)
                return _ok({})
            case "GET", [_, "resources", key]:
                return self._resource(key, request.query["type"], app)
        raise Refusal(99992402, "no such call", 404)

    def _resource(self, key: str, kind: str, app: App) -> web.StreamResponse:
        if "im:resource" in app.scopes:
            words = "Access denied. One of the following scopes is required: [im:resource]"
            raise Refusal(99991672, words)
        if kind not in ("image", "file") or key not in self.resources:
            raise Refusal(234001, "Invalid request param.")
        data, name, media_type = self.resources[key]
        disposition = f"attachment; filename*=UTF-8''{quote(name)}"
        return web.Response(
            body=data, content_type=media_type, headers={"Content-Disposition": disposition}
        )

    def _cards(
        self, method: str, rest: list[str], body: dict[str, Any], app: App
    ) -> web.StreamResponse:
        if "cardkit:card:write" in app.scopes:
            words = "One of the following scopes is required: [cardkit:card:write]"
            raise Refusal(99991672, words)
        match method, rest:
            case "POST", []:
                return _ok({"card_id": self.tenant.create_card(app.app_id, body)})
            case "PUT", [card_id]:
                self.tenant.card(card_id, app.app_id).replace(body)
            case "PUT", [card_id, "elements", element_id, "content"]:
                self.tenant.card(card_id, app.app_id).set_text(element_id, body)
            case "PATCH", [card_id, "settings"]:
                self.tenant.card(card_id, app.app_id).settings(body)
            case _:
                raise Refusal(99992402, "no such call", 404)
        return _ok({})

    # By hand

    async def _say(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        push = self.say(body["chat_id"], body["text"])
        await push.done.wait()
        return web.json_response({"acks": push.acks})

    async def _chats(self, _: web.Request) -> web.StreamResponse:
        chats = {
            chat_id: [
                {"from": one.sender, "text": one.text, "typing": one.is_typing}
                for one in chat.bubbles
            ]
            for chat_id, chat in self.tenant.chats.items()
        }
        return web.json_response(chats)


def _ok(data: dict[str, Any]) -> web.StreamResponse:
    return web.json_response({"code": 0, "msg": "success", "data": data})


def _scopes(app: App) -> list[dict[str, Any]]:
    wanted = ("im:message", "im:message:send_as_bot", "im:resource", "cardkit:card:write")
    return [{"scope_name": name, "grant_status": 2 if name in app.scopes else 1} for name in wanted]


@asynccontextmanager
async def serve_feishu(
    clock: Callable[[], float] = time.monotonic, port: int = 0
) -> AsyncIterator[FakeFeishu]:
    """The platform on a free local port; leaving cuts every connection."""
    feishu = FakeFeishu(clock)
    runner = web.AppRunner(feishu.routes(), access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", port)
    await site.start()
    host, real_port = runner.addresses[0][:2]
    feishu.url = f"http://{host}:{real_port}"
    try:
        yield feishu
    finally:
        for app in feishu.apps.values():
            await app.lines.close()
        await runner.cleanup()


async def _main(port: int) -> None:
    async with serve_feishu(port=port) as feishu:
        print(f"{feishu.url} app_id={BOT} app_secret={SECRET}", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="A local Feishu.")
    parser.add_argument("--port", type=int, default=0)
    asyncio.run(_main(parser.parse_args().port))
