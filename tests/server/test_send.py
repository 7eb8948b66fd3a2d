"""`send_message`: what an agent says elsewhere is told there once, and only where it may be."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from channels.port import QUEUE_MAX, ChatAddress
from guard import NoProgressCall, Rules, result_digest
from server.delivery import Deliveries
from server.errors import ToolError
from server.settings import Settings
from server.signals import RunSignals
from server.store.chats import bind_chat, list_chats
from server.store.engine import Store
from server.store.sessions import Session, insert_session
from server.tools.base import Registry, ToolContext
from server.tools.send import SEND_MESSAGE, SendMessage
from tests.fakes.llm import call, reply, serve_gateway
from tests.house import House, is_title, open_house, settings_for
from tests.server.agent.reopened import reopen_last_round, states
from tests.server.store.rows import NOON, a_session, later
from tests.server.tools.conftest import decoded, error_of

DONE = reply("done")


def unasked(folder: Path, url: str, gateway_url: str) -> Settings:
    """Settings under which nobody is asked before something is sent."""
    config = folder / "headway.toml"
    config.write_text('[approvals]\nweb = "never"\n')
    return settings_for(folder, url, gateway_url, HEADWAY_CONFIG=str(config))


def send(to: str, text: str = "报告已完成") -> Any:
    return reply(calls=[call(SEND_MESSAGE, {"to": to, "text": text})])


async def told(house: House, session: Session) -> dict[str, Any]:
    """What the model was told of its only call."""
    [result] = [message for message in await house.messages(session) if message.role == "tool"]
    content = json.loads(result.text)
    assert isinstance(content, dict)
    return content


async def heard(house: House, session: Session) -> list[str]:
    """What was said in a session."""
    return [message.text for message in await house.messages(session)]


async def test_text_is_told_in_the_other_session_as_a_run_of_its_own(
    tmp_path: Path, database_url: str
) -> None:
    async with open_house(settings_for(tmp_path, database_url, None)) as house:
        other = await house.create()
    async with (
        serve_gateway([send(other.id), DONE], title=is_title) as gateway,
        open_house(unasked(tmp_path, database_url, gateway.url)) as house,
    ):
        session = await house.create()
        await house.ask(session, "go")
        content = await told(house, session)
        events = await house.ended(other)
        assert events[0]["runId"] == content["delivery_id"]
        assert await heard(house, other) == ["报告已完成"]
        assert {**content, "delivery_id": "", "message": ""} == {
            "delivered": False,
            "queued": True,
            "to": other.id,
            "delivery_id": "",
            "message": "",
        }
        assert await states(house, session.id) == ["DONE"]


async def test_sending_whose_answer_was_lost_is_not_repeated(
    tmp_path: Path, database_url: str
) -> None:
    async with open_house(settings_for(tmp_path, database_url, None)) as house:
        other = await house.create()
    async with serve_gateway([send(other.id), DONE], title=is_title) as gateway:
        async with open_house(unasked(tmp_path, database_url, gateway.url)) as house:
            session = await house.create()
            await house.ask(session, "go")
            before = await told(house, session)
            await house.ended(other)
    await reopen_last_round(database_url)
    async with serve_gateway([DONE], title=is_title, strict=False) as gateway:
        async with open_house(unasked(tmp_path, database_url, gateway.url)) as house:
            await house.ended(session)
            assert await told(house, session) == before
            assert (await heard(house, other)).count("报告已完成") == 1


def context_of(session: Session, call_id: str = "c1") -> ToolContext:
    return ToolContext(
        session_id=session.id,
        run_id="r",
        call_id=call_id,
        workspace=Path("/nonexistent"),
        locale="en",
        progress=lambda line: None,
        emit=lambda event: None,
    )


def post_of(store: Store) -> tuple[Registry, RunSignals]:
    signals = RunSignals()
    return Registry([SendMessage(Deliveries(store, signals))]), signals


async def sessions_reached(store: Store) -> list[str]:
    """The sessions in which something waits to be told."""
    async with store.read() as db:
        query = sa.text("SELECT session_id FROM run WHERE trigger='deliver' ORDER BY created_at")
        return list(await db.scalars(query))


async def make(
    store: Store, session_id: str, owner: str, chat: ChatAddress | None = None
) -> Session:
    """A session, of a chat where one is given."""
    session = a_session(session_id, owner=owner)
    async with store.write() as db:
        await insert_session(db, session)
        if chat is not None:
            kind = "UPDATE session SET kind='chat' WHERE id=:id"
            await db.execute(sa.text(kind), {"id": session_id})
            await bind_chat(db, chat, session_id, NOON)
    return session


def arguments(to: str, text: str = "x") -> str:
    return json.dumps({"to": to, "text": text})


GROUP = ChatAddress("feishu", "cli_a", "oc_group")
TOPIC = ChatAddress("feishu", "cli_a", "oc_group", "omt_topic")
FAR = ChatAddress("dingtalk", "ding_b", "cid/+==")


@pytest.fixture
async def people(store: Store) -> Mapping[str, Session]:
    return {
        "ann": await make(store, "s-ann", "ann"),
        "ann-2": await make(store, "s-ann-2", "ann"),
        "bob": await make(store, "s-bob", "bob"),
        "admin": await make(store, "s-admin", "admin"),
        "group": await make(store, "s-group", "feishu:cli_a", GROUP),
        "topic": await make(store, "s-topic", "feishu:cli_a", TOPIC),
        "far": await make(store, "s-far", "dingtalk:ding_b", FAR),
    }


@pytest.mark.parametrize(
    ("sender", "to", "reached"),
    [
        ("ann", "s-ann-2", "s-ann-2"),
        ("ann", "s-bob", None),
        ("ann", "s-admin", None),
        ("ann", "s-group", None),
        ("ann", "feishu:cli_a:oc_group", None),
        ("admin", "s-ann", None),
        ("admin", "s-group", "s-group"),
        ("admin", "feishu:cli_a:oc_group", "s-group"),
        ("admin", "dingtalk:ding_b:cid/+==", "s-far"),
        ("group", "feishu:cli_a:oc_group:omt_topic", "s-topic"),
        ("topic", "feishu:cli_a:oc_group", "s-group"),
        ("group", "dingtalk:ding_b:cid/+==", None),
        ("group", "s-ann", None),
        ("admin", "feishu:cli_a", None),
        ("admin", "feishu:cli_a:oc_none", None),
        ("admin", "", None),
    ],
)
async def test_one_may_send_to_ones_own_and_the_admin_to_every_chat(
    sender: str, to: str, reached: str | None, store: Store, people: Mapping[str, Session]
) -> None:
    registry, signals = post_of(store)
    context = context_of(people[sender])
    result = await registry.dispatch(SEND_MESSAGE, arguments(to), context)
    if reached is None:
        assert error_of(result) == "unknown_destination"
        assert await sessions_reached(store) == []
    else:
        assert decoded(result)["queued"]
        assert await sessions_reached(store) == [reached]
        assert (await signals.next()).session_id == reached


@pytest.mark.parametrize(
    ("sender", "to"), [("ann", "s-ann"), ("group", "s-group"), ("group", "feishu:cli_a:oc_group")]
)
async def test_nobody_sends_to_himself(
    sender: str, to: str, store: Store, people: Mapping[str, Session]
) -> None:
    registry, _ = post_of(store)
    result = await registry.dispatch(SEND_MESSAGE, arguments(to), context_of(people[sender]))
    assert error_of(result) == "own_session"
    assert "answer directly" in decoded(result)["message"]


@pytest.mark.parametrize(
    ("sender", "named"),
    [
        ("ann", []),
        ("group", ["feishu:cli_a:oc_group:omt_topic"]),
        (
            "admin",
            ["feishu:cli_a:oc_group", "feishu:cli_a:oc_group:omt_topic", "dingtalk:ding_b:cid/+=="],
        ),
    ],
)
async def test_wrong_destination_is_answered_with_those_that_one_may_send_to(
    sender: str, named: list[str], store: Store, people: Mapping[str, Session]
) -> None:
    registry, _ = post_of(store)
    result = await registry.dispatch(SEND_MESSAGE, arguments("nowhere"), context_of(people[sender]))
    words = decoded(result)["message"]
    _, _, told = words.partition("chats are: ")
    assert sorted(told.split(", ")) == sorted(named or [""])
    assert "s-" not in words


async def test_at_most_so_many_chats_are_listed_the_last_first(store: Store) -> None:
    for number in range(5):
        chat = ChatAddress("feishu", "cli_a", f"oc_{number}")
        await make(store, f"s{number}", "feishu:cli_a")
        async with store.write() as db:
            await bind_chat(db, chat, f"s{number}", later(number))
    async with store.read() as db:
        found = await list_chats(db, "feishu:cli_a", besides="s4", limit=2)
        everywhere = await list_chats(db, None, besides="", limit=20)
        assert await list_chats(db, "ann", besides="", limit=20) == []
    assert [chat.chat_id for chat in found] == ["oc_3", "oc_2"]
    assert len(everywhere) == 5


async def test_same_call_is_one_message_and_another_is_another(
    store: Store, people: Mapping[str, Session]
) -> None:
    registry, _ = post_of(store)
    ids = set()
    for call_id in ("c1", "c1", "c2"):
        context = context_of(people["ann"], call_id)
        ids.add(
            decoded(await registry.dispatch(SEND_MESSAGE, arguments("s-ann-2"), context))[
                "delivery_id"
            ]
        )
    assert len(ids) == 2
    assert await sessions_reached(store) == ["s-ann-2", "s-ann-2"]


async def test_call_tells_what_became_of_it(store: Store, people: Mapping[str, Session]) -> None:
    registry, _ = post_of(store)
    context = context_of(people["ann"])
    asked = arguments("s-ann-2")
    mark = await registry.mark(SEND_MESSAGE, asked, context)
    assert await registry.lookup(SEND_MESSAGE, asked, mark, context) == "not_done"
    result = await registry.dispatch(SEND_MESSAGE, asked, context, mark)
    assert await registry.lookup(SEND_MESSAGE, asked, mark, context) == result


async def test_call_that_is_older_than_what_is_remembered_is_unknown(
    store: Store, people: Mapping[str, Session]
) -> None:
    """Its key may have been forgotten meanwhile."""
    registry, _ = post_of(store)
    context = context_of(people["ann"])
    for hours, found in ((10, "not_done"), (12, "unknown")):
        mark = (datetime.now(UTC) - timedelta(hours=hours)).isoformat()
        assert await registry.lookup(SEND_MESSAGE, arguments("s-ann-2"), mark, context) == found


async def test_session_where_too_much_waits_is_full(
    store: Store, people: Mapping[str, Session]
) -> None:
    registry, _ = post_of(store)
    for number in range(QUEUE_MAX):
        context = context_of(people["ann"], f"c{number}")
        assert not (await registry.dispatch(SEND_MESSAGE, arguments("s-ann-2"), context)).is_error
    more = context_of(people["ann"], "more")
    refused = await registry.dispatch(SEND_MESSAGE, arguments("s-ann-2"), more)
    assert error_of(refused) == "queue_full"
    again = context_of(people["ann"], "c0")
    assert not (await registry.dispatch(SEND_MESSAGE, arguments("s-ann-2"), again)).is_error


@pytest.mark.parametrize(
    "asked",
    ["{}", '{"to": "s"}', '{"to": "s", "text": " \\n"}', arguments("s", "x" * 20_001)],
)
async def test_bad_arguments_are_told_before_anything_begins(
    asked: str, store: Store, people: Mapping[str, Session]
) -> None:
    registry, _ = post_of(store)
    with pytest.raises(ToolError) as refused:
        await registry.mark(SEND_MESSAGE, asked, context_of(people["ann"]))
    assert refused.value.code == "bad_arguments"


async def test_equal_sendings_have_one_digest_and_others_do_not(
    store: Store, people: Mapping[str, Session]
) -> None:
    registry, _ = post_of(store)

    declared = Rules(contracts=registry.contracts())

    async def digest(sender: str, to: str, call_id: str, rules: Rules = declared) -> str:
        asked = arguments(to)
        context = context_of(people[sender], call_id)
        result = await registry.dispatch(SEND_MESSAGE, asked, context)
        return result_digest(NoProgressCall(SEND_MESSAGE, asked, result.content), rules)

    sent = await digest("ann", "s-ann-2", "c1")
    assert await digest("ann", "s-ann-2", "c2") == sent
    refused = await digest("ann", "s-bob", "c3")
    assert await digest("ann", "s-bob", "c4") == refused
    mine = await digest("ann", "s-ann", "c5")
    assert len({sent, refused, mine}) == 3
    assert await digest("ann", "s-ann-2", "c6", Rules()) != await digest(
        "ann", "s-ann-2", "c7", Rules()
    ), "the rule is needed"
