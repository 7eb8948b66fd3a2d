"""Progress contracts over REST: of sessions and of scheduled tasks."""

from typing import Any

import pytest

from server.store.engine import Store
from server.store.runs import list_runs
from server.store.sessions import load_session
from tests.server.contracts import TWO_SOURCES
from tests.server.http.site import ADMIN, ALICE, BOB, Site, add_session

WRONG = {**TWO_SOURCES, "stop_after": 0}
TASK = {"prompt": "look", "schedule": {"kind": "cron", "expression": "0 9 1 1 *"}}


async def ask(
    site: Site, method: str, path: str, body: object = None, headers: dict[str, str] = ALICE
) -> tuple[int, Any]:
    """Status and JSON of an answer."""
    async with site.http.request(method, f"/api{path}", json=body, headers=headers) as got:
        return got.status, await got.json()


async def path_of_fault(site: Site, method: str, path: str, body: object) -> str:
    """The field for which the request is refused."""
    status, answer = await ask(site, method, path, body)
    assert status == 400, answer
    return str(answer["error"]["details"]["path"])


async def test_a_session_is_made_with_a_contract_and_shows_it(site: Site, store: Store) -> None:
    form = {"title": " Two  sources ", "contract": TWO_SOURCES}
    status, made = await ask(site, "POST", "/sessions", form)
    assert status == 201
    assert (made["title"], made["owner"], made["kind"]) == ("Two sources", "alice", "main")
    assert made["contract"] == TWO_SOURCES
    assert await ask(site, "GET", f"/sessions/{made['id']}") == (200, made)
    assert (await ask(site, "GET", f"/sessions/{made['id']}", headers=BOB))[0] == 404
    async with store.read() as db:
        assert (await load_session(db, made["id"])).contract_json is not None


async def test_a_session_is_made_of_nothing_at_all(site: Site) -> None:
    status, made = await ask(site, "POST", "/sessions", {})
    assert (status, made["title"], made["contract"]) == (201, None, None)
    assert (await ask(site, "POST", "/sessions", {}, headers={}))[0] == 401


async def test_a_contract_is_given_changed_and_taken_away(site: Site, store: Store) -> None:
    async with store.write() as db:
        await add_session(db, "s1", "alice", title="kept")
    changed = {**TWO_SOURCES, "version": 2, "stop_after": 4}
    for given in (TWO_SOURCES, changed, None):
        status, session = await ask(site, "PATCH", "/sessions/s1", {"contract": given})
        assert (status, session["contract"], session["title"]) == (200, given, "kept")
        _, untouched = await ask(site, "PATCH", "/sessions/s1", {"title": "kept"})
        assert untouched["contract"] == given


async def test_a_wrong_contract_is_refused_before_anything_is_kept(
    site: Site, store: Store
) -> None:
    async with store.write() as db:
        await add_session(db, "s1", "alice", title="before")
    for body in ({"contract": WRONG, "title": "after"}, {"title": "after", "contract": WRONG}):
        path = await path_of_fault(site, "PATCH", "/sessions/s1", body)
        assert path == "contract.stop_after"
    assert await path_of_fault(site, "POST", "/sessions", {"contract": WRONG}) == (
        "contract.stop_after"
    )
    assert await path_of_fault(site, "POST", "/tasks", {**TASK, "contract": WRONG}) == (
        "contract.stop_after"
    )
    _, listed = await ask(site, "GET", "/sessions", headers=ADMIN)
    assert [(one["id"], one["title"]) for one in listed["sessions"]] == [("s1", "before")]
    assert (await ask(site, "GET", "/tasks"))[1]["tasks"] == []


@pytest.mark.parametrize(
    ("extract", "path"),
    [
        ({"regex": "("}, "contract.items[0].extract"),
        ({"jmespath": "facts["}, "contract.items[0].extract"),
        ({"jmespath": "join(',', @)"}, "contract.items[0].extract"),
        ({"xpath": "//a"}, "contract.items[0].extract"),
    ],
)
async def test_an_expression_that_cannot_be_used_is_named(
    site: Site, extract: dict[str, str], path: str
) -> None:
    item = {"id": "a", "text": "a", "tool": "t", "extract": extract}
    form = {"contract": {"id": "c", "items": [item]}}
    assert await path_of_fault(site, "POST", "/sessions", form) == path


async def test_a_task_gives_its_contract_to_each_of_its_runs(site: Site, store: Store) -> None:
    status, task = await ask(site, "POST", "/tasks", {**TASK, "contract": TWO_SOURCES})
    assert (status, task["contract"]) == (201, TWO_SOURCES)
    path = f"/tasks/{task['id']}"
    assert (await ask(site, "GET", path))[1]["contract"] == TWO_SOURCES
    _, first = await ask(site, "POST", f"{path}/run")
    async with store.read() as db:
        [run] = await list_runs(db, first["session"], 10)
    assert run.input is not None
    assert run.input.contract == {**TWO_SOURCES, "items": list(TWO_SOURCES["items"])}


async def test_the_contract_of_a_task_is_changed_and_taken_away(site: Site) -> None:
    _, task = await ask(site, "POST", "/tasks", TASK)
    assert task["contract"] is None
    path = f"/tasks/{task['id']}"
    for given in (TWO_SOURCES, {**TWO_SOURCES, "version": 2}, None):
        _, changed = await ask(site, "PATCH", path, {"contract": given})
        assert changed["contract"] == given
        _, untouched = await ask(site, "PATCH", path, {"title": "other"})
        assert (untouched["contract"], untouched["title"]) == (given, "other")
    assert await path_of_fault(site, "PATCH", path, {"contract": WRONG}) == "contract.stop_after"
