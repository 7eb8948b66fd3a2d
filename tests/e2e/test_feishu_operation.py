"""What an operator of a Feishu bot relies on: health, figures, the doctor, webhooks, two bots."""

import asyncio
import json
from pathlib import Path
from typing import Any

import aiohttp

from tests.channels.feishu.test_webhook import encrypted, signed
from tests.e2e.feishu_chat import CHAT, DONE, card_with, connected, installed, visible
from tests.e2e.process import ADMIN, Installation, ServerProcess, open_server
from tests.fakes.feishu import BOT, SECRET, FakeFeishu, serve_feishu
from tests.fakes.llm import forever, reply, serve_gateway
from tests.house import is_title
from tests.server.test_cli import run
from tests.waiting import until

KEY = "encrypt-key"
OTHER = "cli_other"


async def figures(server: ServerProcess) -> dict[str, float]:
    """The metrics of the bot, and how much the outbox owes."""
    headers = {"Authorization": f"Bearer {ADMIN}"}
    async with (
        aiohttp.ClientSession(server.url, headers=headers) as http,
        http.get("/metrics") as response,
    ):
        lines = [line.rsplit(" ", 1) for line in (await response.text()).splitlines()]
    bot = f'{{app="{BOT}",platform="feishu"}}'
    return {
        line[0].removeprefix("headway_").removesuffix(bot): float(line[1])
        for line in lines
        if line[0].endswith(bot) or line[0] == "headway_outbox_pending"
    }


async def channel(server: ServerProcess) -> dict[str, Any]:
    """The bot in `/readyz`."""
    _, body = await server.get("/readyz")
    [found] = body["channels"]
    told: dict[str, Any] = found
    return told


async def test_health_and_figures_tell_how_the_bot_is(tmp_path: Path) -> None:
    async with (
        serve_feishu() as feishu,
        serve_gateway(forever(reply("好。")), title=is_title) as gateway,
        open_server(installed(tmp_path, gateway.url, feishu)) as server,
    ):
        await connected(feishu)
        first = feishu.say(CHAT, "在吗")
        again = feishu.send(first.event)
        late = feishu.say(CHAT, "早就问过", age_seconds=900)
        await asyncio.gather(*(push.done.wait() for push in (first, again, late)))
        await card_with(feishu, DONE)
        await feishu.until(lambda: len(visible(feishu)) == 2)
        told = await channel(server)
        assert (told["app"], told["state"], told["ok"]) == (BOT, "up", True)
        assert told["lastFrameSeconds"] < 60
        counted = await figures(server)
        assert counted["channel_up"] == 1
        assert counted["channel_acks"] == 3
        assert counted["channel_duplicates"] == 1
        assert counted["channel_stale"] == 1
        assert 0 < counted["channel_ack_seconds_max"] < 1
        assert counted["channel_last_frame_seconds"] < 60
        assert counted["channel_throttle_waits"] == 0
        assert counted["channel_reconnects"] == 0
        assert "outbox_pending" in counted
        feishu.app().discovery = {"code": 1000040345, "msg": "app secret invalid"}
        await feishu.app().lines.cut()

        async def is_down() -> bool:
            told = await channel(server)
            return bool(told["state"] == "down")

        await until(is_down)
        assert (await figures(server))["channel_up"] == 0
        feishu.app().discovery = None
        await connected(feishu, 2)
        await feishu.say(CHAT, "还在吗").done.wait()
        assert (await figures(server))["channel_reconnects"] == 1
        assert (await channel(server))["state"] == "up"


async def call(server: ServerProcess, body: bytes, headers: dict[str, str], app: str = BOT) -> Any:
    """Status and answer of a call of the platform, and how long it took in seconds."""
    clock = asyncio.get_running_loop().time
    began = clock()
    async with (
        aiohttp.ClientSession(server.url) as http,
        http.post(f"/hooks/feishu/{app}", data=body, headers=headers) as response,
    ):
        return response.status, await response.json(), clock() - began


async def test_bot_without_a_connection_is_called_by_webhook(tmp_path: Path) -> None:
    mode = {"FEISHU_MODE": "webhook", "FEISHU_ENCRYPT_KEY": KEY}
    async with (
        serve_feishu() as feishu,
        serve_gateway([reply("经回调收到。")], title=is_title) as gateway,
        open_server(installed(tmp_path, gateway.url, feishu, **mode)) as server,
    ):
        challenge = {"type": "url_verification", "challenge": "c-1", "token": "any"}
        check = encrypted(json.dumps(challenge).encode(), KEY)
        status, answer, seconds = await call(server, check, {})
        assert (status, answer) == (200, {"challenge": "c-1"})
        assert seconds < 1
        event = feishu.message_event(CHAT, "text", {"text": "在吗"})
        body = encrypted(json.dumps(event).encode(), KEY)
        headers = signed(body, KEY)
        status, _, seconds = await call(server, body, headers)
        assert status == 200
        assert seconds < 1
        card = await card_with(feishu, DONE)
        assert "经回调收到。" in card.text
        refused = [
            await call(server, body, headers),
            await call(server, body, {}),
            await call(server, body, signed(body, "another-key")),
        ]
        assert [status for status, *_ in refused] == [401, 401, 401]
        pushed = encrypted(json.dumps(event).encode(), KEY)
        assert (await call(server, pushed, signed(pushed, KEY)))[0] == 200
        assert (await call(server, body, signed(body, KEY), OTHER))[0] == 404
        assert feishu.app().lines.accepted == 0
        assert len(gateway.requests) == 1
        assert visible(feishu) == [card]


async def test_the_doctor_says_what_to_click(tmp_path: Path) -> None:
    async with serve_feishu() as feishu, serve_gateway([], title=is_title) as gateway:
        feishu.app().scopes.add("cardkit:card:write")
        place = installed(tmp_path, gateway.url, feishu)
        code, said, _ = await run(place.environment(), "doctor", folder=tmp_path)
        assert code != 0
        assert "grant cardkit:card:write under 权限管理" in said
        assert feishu.app().lines.accepted == 0
        secret = "another-secret"
        wrong = installed(tmp_path, gateway.url, feishu, FEISHU_APP_SECRET=secret)
        code, said, _ = await run(wrong.environment(), "doctor", folder=tmp_path)
        assert code != 0
        assert "凭证与基础信息" in said
        assert secret not in said


def two_bots(folder: Path, gateway_url: str, feishu: FakeFeishu) -> Installation:
    """A server whose file names two bots, of which the second answers one person."""
    bots = [(BOT, SECRET, "*"), (OTHER, feishu.app(OTHER).secret, "ou_alice")]
    lines = [
        f'[[feishu]]\napp_id = "{app_id}"\napp_secret = "{secret}"\n'
        f'domain = "{feishu.url}"\nallow = ["{allow}"]\n'
        for app_id, secret, allow in bots
    ]
    config = folder / "bots.toml"
    config.write_text("\n".join(lines), "utf-8")
    return Installation(folder, gateway_url, {"CONFIG": str(config)})


async def test_two_bots_of_one_server_each_answer_their_own(tmp_path: Path) -> None:
    async with serve_feishu() as feishu, serve_gateway(forever(reply("好。"))) as gateway:
        async with open_server(two_bots(tmp_path, gateway.url, feishu)):
            await connected(feishu)
            await feishu.app(OTHER).lines.until_live()
            feishu.say("oc_one", "一", sender="ou_bob")
            feishu.say("oc_two", "二", app_id=OTHER)
            astray = feishu.message_event("oc_stray", "text", {"text": "三"}, feishu.app(OTHER))
            await feishu.app().lines.push(astray).done.wait()
            first = await card_with(feishu, DONE, "oc_one")
            second = await card_with(feishu, DONE, "oc_two")
            feishu.say("oc_three", "四", app_id=OTHER, sender="ou_bob")
            await feishu.until(lambda: visible(feishu, "oc_three"))
        assert (first.sender, second.sender) == (BOT, OTHER)
        assert "ou_bob" in visible(feishu, "oc_three")[0].text
        assert visible(feishu, "oc_stray") == []
