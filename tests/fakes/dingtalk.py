"""A local DingTalk: its HTTP faces and its people, on one real port of 127.0.0.1.

    async with serve_dingtalk() as platform:
        ...  # open a bot on platform.url with the credentials platform.app
        ack = await platform.say("你好")
        assert platform.chat() == ["…"]

As a process, for a server that runs elsewhere: `python -m tests.fakes.dingtalk --port 0`; then
`POST /sim/say`, `/sim/click` (the stop button), `/sim/press`, and `GET /sim/state`.
"""

import argparse
import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, replace
from typing import Any

from aiohttp import web

from tests.fakes.dingtalk_gateway import TOPIC_CLICK, Ack, Gateway
from tests.fakes.dingtalk_world import App, Call, Card, Refusal, Script, api_refusal, oapi, paths

__all__ = ["Ack", "Card", "FakeDingTalk", "Refusal", "api_refusal", "oapi", "serve_dingtalk"]


class FakeDingTalk(Gateway):
    """The platform while it runs; made by `serve_dingtalk`."""

    def __init__(
        self, system_ping_seconds: float | None, cut_seconds: float, clock: Callable[[], float]
    ) -> None:
        super().__init__(system_ping_seconds, cut_seconds, clock)
        self._scripts: dict[str, Script] = {}
        self._message_number = 0

    def script(self, path: str, *refusals: Refusal) -> Script:
        """Answer the next calls whose path ends with *path* so, one after the other."""
        script = self._scripts.setdefault(path, Script())
        script.refusals.extend(refusals)
        return script

    def chat(self, chat_id: str = "cidAb+C/d==") -> list[str]:
        """The texts in a chat."""
        return self.chats.get(chat_id, [])

    def called(self, path: str) -> list[Call]:
        """The calls whose path ends with *path*."""
        return paths(self.calls, path)

    @property
    def only_card(self) -> Card:
        """The card, where there is one."""
        (card,) = self.cards.values()
        return card

    def message(self, text: str = "hello", **changes: Any) -> dict[str, Any]:
        """A message of Alice in her chat with the bot; `group=True` puts it into a group."""
        self._message_number += 1
        is_group = changes.pop("group", False)
        chat_id = "cidGroup==" if is_group else "cidAb+C/d=="
        made: dict[str, Any] = {
            "msgId": f"msg{self._message_number}==",
            "msgtype": "text",
            "text": {"content": text},
            "conversationType": "2" if is_group else "1",
            "conversationId": chat_id,
            "senderStaffId": "staff01",
            "senderId": "$:LWCP_v1:$x",
            "senderNick": "Alice",
            "chatbotUserId": "$:LWCP_v1:$bot",
            "robotCode": self.app.client_id,
            "createAt": int(time.time() * 1000),
            "isInAtList": True,
            **changes,
        }
        session = f"s{self._message_number}"
        made.setdefault("sessionWebhook", f"{self.url}/robot/sendBySession?session={session}")
        made.setdefault("sessionWebhookExpiredTime", int(time.time() * 1000) + 5_400_000)
        self._learn(made, session)
        return {name: value for name, value in made.items() if value is not None}

    async def say(self, text: str = "hello", **changes: Any) -> Ack:
        """Push a message of Alice and wait for the acknowledgement."""
        return await self.push(self.message(text, **changes))

    async def press(self, card_id: str, button: str, user: str = "staff01") -> Ack:
        """Press the button of a card on which *button* stands."""
        sent = self.cards[card_id].look.buttons[button]
        return await self.click(card_id, user, action=sent["actionId"], params=sent["params"])

    async def click(
        self,
        card_id: str,
        user: str = "staff01",
        *,
        action: str = "stop",
        params: Mapping[str, str] | None = None,
        **changes: Any,
    ) -> Ack:
        """Press a button of a card, the stop button unless told otherwise."""
        private = {"cardPrivateData": {"actionIds": [action], "params": params or {}}}
        data = {
            "outTrackId": card_id,
            "type": "actionCallback",
            "userId": user,
            "extension": "{}",
            "content": json.dumps(private),
            **changes,
        }
        ack = await self.push(data, TOPIC_CLICK)
        answer = ack.data.get("response") if isinstance(ack.data, dict) else None
        if isinstance(answer, dict) and "cardData" in answer and card_id in self.cards:
            self.update_card(self.app, {"outTrackId": card_id, **answer})
            await self._change()
        return ack

    def routes(self) -> list[web.RouteDef]:
        """The HTTP faces."""
        return [
            *self.gateway_routes(),
            web.get("/download/{code}", self._download),
            web.post("/sim/say", self._sim_say),
            web.post("/sim/click", self._sim_click),
            web.post("/sim/press", self._sim_press),
            web.get("/sim/state", self._sim_state),
            web.route("*", "/{path:.*}", self._api),
        ]

    async def _api(self, request: web.Request) -> web.Response:
        body = await _body(request)
        script = next(
            (script for end, script in self._scripts.items() if request.path.endswith(end)),
            Script(),
        )
        call = Call(request.method, request.path, body, asyncio.get_running_loop().time())
        number = len(self.calls)
        self.calls.append(call)
        await self._change()
        if script.hold is not None:
            await script.hold.wait()
        refusal = script.refusals.popleft() if script.refusals else self._answer(request, body)
        self.calls[number] = replace(call, status=refusal.status, answer=refusal.body)
        await self._change()
        if script.hold_answers is not None:
            await script.hold_answers.wait()
        if script.drops:
            script.drops -= 1
            assert request.transport is not None, "the client waits for its answer"
            request.transport.abort()
        return web.json_response(refusal.body, status=refusal.status, headers=refusal.headers)

    def _answer(self, request: web.Request, body: Any) -> Refusal:
        match request.method, request.path:
            case "POST", "/v1.0/oauth2/accessToken":
                return self.issue_token(body)
            case "POST", "/robot/sendBySession":
                return self.send_webhook(request.query.get("session", ""), body)
            case "POST", "/media/upload":
                return self._upload(request, body)
        token = request.headers.get("x-acs-dingtalk-access-token", "")
        app = self.admit(token, request.path, _SCOPES.get(request.path))
        if isinstance(app, Refusal):
            return app
        return self._openapi(app, request.method, request.path, body)

    def _openapi(self, app: App, method: str, path: str, body: Any) -> Refusal:
        match method, path:
            case "POST", "/v1.0/robot/oToMessages/batchSend":
                return self.send_people(body)
            case "POST", "/v1.0/robot/groupMessages/send":
                return self.send_group(body)
            case "POST", "/v1.0/robot/messageFiles/download":
                return self._download_url(body)
            case "POST", "/v1.0/robot/emotion/reply" | "/v1.0/robot/emotion/recall":
                return self.react(body, remove=path.endswith("recall"))
            case "POST", "/v1.0/card/instances/createAndDeliver":
                return self.create_card(app, body)
            case "POST", "/v1.0/card/instances":
                return self.make_card(app, body)
            case "PUT", "/v1.0/card/streaming":
                return self.stream_card(app, body)
            case "PUT", "/v1.0/card/instances":
                return self.update_card(app, body)
        return api_refusal(404, "InvalidAction.NotFound")

    def _download_url(self, body: Any) -> Refusal:
        if not body.get("robotCode"):
            return api_refusal(400, "MissingrobotCode")
        if body.get("downloadCode") not in self.files:
            return api_refusal(400, "invalidParameter.downloadCode")
        return Refusal(200, {"downloadUrl": f"{self.url}/download/{body['downloadCode']}"})

    def _upload(self, request: web.Request, body: Any) -> Refusal:
        admitted = self.admit(request.query.get("access_token", ""), request.path, None)
        if isinstance(admitted, Refusal):
            return oapi(40014, "不合法的access_token")
        return oapi(0, media_id="@media1") if body else oapi(40004, "empty file")

    async def _download(self, request: web.Request) -> web.Response:
        data, media_type = self.files[request.match_info["code"]]
        return web.Response(body=data, content_type=media_type)

    def _learn(self, message: Mapping[str, Any], session: str) -> None:
        chat_id = message["conversationId"]
        self.webhooks[session] = chat_id
        if message["conversationType"] == "2":
            self.groups.add(chat_id)
        elif message["senderStaffId"]:
            self.people[message["senderStaffId"]] = chat_id

    async def _sim_say(self, request: web.Request) -> web.Response:
        body = await request.json()
        ack = await self.say(body.pop("text"), **body)
        return web.json_response(asdict(ack))

    async def _sim_click(self, request: web.Request) -> web.Response:
        return web.json_response(asdict(await self.click(**await request.json())))

    async def _sim_press(self, request: web.Request) -> web.Response:
        return web.json_response(asdict(await self.press(**await request.json())))

    async def _sim_state(self, request: web.Request) -> web.Response:
        cards = {
            card_id: {
                "chat_id": card.chat_id,
                "seen": card.seen,
                "buttons": list(card.look.buttons),
                **asdict(card.look),
            }
            for card_id, card in self.cards.items()
        }
        state = {"chats": self.chats, "cards": cards, "connections": len(self.connections)}
        state["frames"] = len(self.frames)
        return web.json_response(state)


_SCOPES: Mapping[str, str] = {
    "/v1.0/card/instances/createAndDeliver": "Card.Instance.Write",
    "/v1.0/card/instances": "Card.Instance.Write",
    "/v1.0/card/streaming": "Card.Streaming.Write",
}


async def _body(request: web.Request) -> Any:
    if request.content_type.startswith("multipart/"):
        return dict(await request.post())
    raw = await request.read()
    return json.loads(raw) if raw else {}


@asynccontextmanager
async def serve_dingtalk(
    *,
    port: int = 0,
    system_ping_seconds: float | None = 30.0,
    cut_seconds: float = 10.0,
    clock: Callable[[], float] = time.monotonic,
) -> AsyncIterator[FakeDingTalk]:
    """A platform with one app.

    Args:
        port: 0 takes a free one.
        system_ping_seconds: Between system pings; None sends none.
        cut_seconds: From an announced disconnect to the end of its TCP connection.
        clock: By which rates and tokens are judged.
    """
    platform = FakeDingTalk(system_ping_seconds, cut_seconds, clock)
    app = web.Application(client_max_size=32 * 2**20)
    app.add_routes(platform.routes())
    runner = web.AppRunner(app, shutdown_timeout=0.5, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", port)
    await site.start()
    host, bound, *_ = runner.addresses[0]
    platform.url = f"http://{host}:{bound}"
    try:
        yield platform
    finally:
        await platform.close()
        await runner.cleanup()


async def _run(chosen: argparse.Namespace) -> None:
    async with serve_dingtalk(port=chosen.port, system_ping_seconds=chosen.ping) as platform:
        platform.app = platform.add_app(chosen.client_id, chosen.client_secret)
        print(platform.url, flush=True)
        await asyncio.Event().wait()


def main() -> None:
    """Serve a platform and print its base URL."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--client-id", default="ding_test")
    parser.add_argument("--client-secret", default="secret-1")
    parser.add_argument("--ping", type=float, default=30.0, help="seconds between system pings")
    with suppress(KeyboardInterrupt):
        asyncio.run(_run(parser.parse_args()))


if __name__ == "__main__":
    main()
