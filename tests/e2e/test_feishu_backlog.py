"""A backlog of a Feishu bot of the running server: acknowledged at once, told once."""

import asyncio
from pathlib import Path

from tests.e2e.feishu_chat import CHAT, connected, installed, visible
from tests.e2e.process import open_server
from tests.fakes.feishu import FakeFeishu, serve_feishu
from tests.fakes.feishu_lines import Push
from tests.fakes.llm import serve_gateway
from tests.house import is_title

AGES = (2400, 2100, 1800, 1500, 1200, 900, 700)
GROUP = "oc_group"


def late(feishu: FakeFeishu) -> list[Push]:
    """All that was held back while the bot was away, a command too, within an instant."""
    alone = [feishu.say(CHAT, f"{age} 秒前", age_seconds=age) for age in AGES]
    others = [
        feishu.say(GROUP, "话题里的", age_seconds=1300, is_group=True, thread_id="omt_1"),
        feishu.say(GROUP, "群里的", age_seconds=1200, is_group=True),
    ]
    return [*alone, feishu.say(CHAT, "/stop", age_seconds=90), *others]


async def test_backlog_is_acknowledged_at_once_and_told_once_though_the_server_is_killed(
    tmp_path: Path,
) -> None:
    async with serve_feishu() as feishu, serve_gateway([], title=is_title) as gateway:
        place = installed(tmp_path, gateway.url, feishu)
        async with open_server(place) as server:
            await connected(feishu)
            pushes = late(feishu)
            await asyncio.gather(*(push.done.wait() for push in pushes))
            await server.sigkill()
        assert [push.acks for push in pushes] == [[200]] * len(pushes)
        assert all(push.ack_seconds is not None and push.ack_seconds < 1 for push in pushes)
        assert visible(feishu) == visible(feishu, GROUP) == []
        async with open_server(place):
            await connected(feishu, 2)
            await feishu.until(lambda: visible(feishu) and visible(feishu, GROUP))
            again = [feishu.send(push.event) for push in pushes]
            await asyncio.gather(*(push.done.wait() for push in again))
            newest = feishu.say(CHAT, "/status")
            await newest.done.wait()
            await feishu.until(lambda: len(visible(feishu)) == 2)
        assert f"{len(AGES) + 1} 条消息" in visible(feishu)[0].text
        [notice] = visible(feishu, GROUP)
        assert "2 条消息" in notice.text
        assert not gateway.requests
