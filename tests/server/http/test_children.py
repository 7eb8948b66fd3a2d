"""Sessions that stand under others, in lists over REST."""

from dataclasses import replace

from sqlalchemy.ext.asyncio import AsyncConnection

from server.message import Message
from server.store.engine import Store
from server.store.messages import append_messages
from server.store.sessions import insert_session, load_session
from tests.server.http.site import ADMIN, ALICE, BOB, EPOCH, Site, add_session


async def add_child(db: AsyncConnection, session_id: str, parent_id: str, kind: str) -> None:
    parent = await load_session(db, parent_id)
    child = replace(parent, id=session_id, kind=kind, parent_session_id=parent_id, title=None)
    await insert_session(db, replace(child, inherited_seq=1))
    inherited = Message(f"{session_id}-1", "user", "about the harvest", EPOCH)
    own = Message(f"{session_id}-2", "user", f"question of {session_id}", EPOCH)
    await append_messages(db, session_id, [inherited, own])


async def ids(site: Site, headers: dict[str, str], query: str = "") -> set[str]:
    async with site.http.get(f"/api/sessions{query}", headers=headers) as response:
        assert response.status == 200
        return {session["id"] for session in (await response.json())["sessions"]}


async def fill(store: Store) -> None:
    async with store.write() as db:
        await add_session(db, "main", "alice", title="harvest")
        await add_session(db, "bobs", "bob")
        await add_child(db, "side", "main", "sideline")
        await add_child(db, "agent", "main", "subagent")
        await add_child(db, "deep", "side", "sideline")
        planned = replace(
            await load_session(db, "main"), id="planned", kind="scheduled", title=None
        )
        await insert_session(db, planned)
        chat = replace(await load_session(db, "main"), id="chat", kind="chat", title=None)
        await insert_session(db, chat)


async def test_children_are_listed_under_their_parent_and_by_kind(site: Site, store: Store) -> None:
    await fill(store)
    assert await ids(site, ALICE) == {"main", "chat"}
    assert await ids(site, ADMIN) == {"main", "chat", "bobs"}
    assert await ids(site, ALICE, "?parent=main") == {"side", "agent"}
    assert await ids(site, ALICE, "?parent=side") == {"deep"}
    assert await ids(site, ALICE, "?parent=main&kind=subagent") == {"agent"}
    assert await ids(site, ALICE, "?kind=scheduled") == {"planned"}
    assert await ids(site, ALICE, "?kind=sideline") == {"side", "deep"}
    assert await ids(site, BOB, "?kind=sideline") == set()


async def test_a_foreign_parent_is_like_none_and_a_wrong_kind_is_named(
    site: Site, store: Store
) -> None:
    await fill(store)
    for headers, query, status in (
        (BOB, "parent=main", 404),
        (ALICE, "parent=none", 404),
        (ALICE, "kind=sidelines", 400),
    ):
        async with site.http.get(f"/api/sessions?{query}", headers=headers) as response:
            assert response.status == status


async def test_a_search_finds_children_by_their_own_words(site: Site, store: Store) -> None:
    await fill(store)
    assert await ids(site, ALICE, "?search=harvest") == {"main"}
    assert await ids(site, ALICE, "?search=question") == {"side", "agent", "deep"}
    assert await ids(site, ALICE, "?search=question&parent=side") == {"deep"}


async def test_history_leaves_out_what_was_inherited(site: Site, store: Store) -> None:
    await fill(store)
    async with site.http.get("/api/sessions/side/messages?limit=1", headers=ALICE) as response:
        page = await response.json()
    assert [message["content"] for message in page["messages"]] == ["question of side"]
    assert not page["hasMore"]
    async with site.http.get("/api/sessions/side", headers=ALICE) as response:
        shown = await response.json()
    assert (shown["kind"], shown["parent"]) == ("sideline", "main")
