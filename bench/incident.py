"""The incident that the guard was made for: one search, again and again, for 440 rounds."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import aiohttp

from bench.client import open_client
from bench.figure import Figure
from bench.process import open_server
from tests.fakes.llm import Recorded, call, forever, reply, serve_gateway

ROUNDS = 440
"""How many there were before a person stopped it."""
STOPPED_AT = 15
QUESTION = "补充飞书机器人文档"


async def measure(folder: Path) -> list[Figure]:
    """Replay it against a model that never learns."""
    same = forever(reply(calls=[call("grep_search", {"pattern": "群名", "path": "."})]))
    async with (
        serve_gateway(same, title=_is_title) as gateway,
        open_server(folder, gateway.url) as server,
        aiohttp.ClientSession() as http,
        open_client(http, server.url) as client,
    ):
        await client.ask(await client.open_session(), QUESTION)
        ended = await client.ended()
    if ended.get("code") != "no_progress_loop":
        raise RuntimeError("the run was not stopped by the guard")
    return _figures([request.body for request in gateway.requests])


def _is_title(request: Recorded) -> bool:
    return "tools" not in request.json


def _figures(bodies: Sequence[bytes]) -> list[Figure]:
    broken = sum(not later.startswith(_open(earlier)) for earlier, later in pairwise(bodies))
    sent = sum(map(len, bodies)) / 1024
    calls = float(len(bodies))
    return [
        Figure("incident: model calls", calls, "", ROUNDS, STOPPED_AT, "measured"),
        Figure(
            f"incident: of {len(bodies) - 1} requests, not extending the one before",
            float(broken),
            "",
            None,
            0.0,
            "measured",
        ),
        Figure(
            "incident: prompt bytes sent",
            sent,
            "KB",
            _unguarded_bytes(bodies) / 1024,
            STOPPED_AT / ROUNDS,
        ),
    ]


def _open(body: bytes) -> bytes:
    """A request without the brackets that close it."""
    return body.removesuffix(b"]}")


def _unguarded_bytes(bodies: Sequence[bytes]) -> int:
    """What all rounds would have sent: each request is longer by one round than the one before.

    The second and third tell how long a round is; no notice stands in them yet.
    """
    grown = len(bodies[2]) - len(bodies[1])
    return ROUNDS * len(bodies[0]) + grown * ROUNDS * (ROUNDS - 1) // 2
