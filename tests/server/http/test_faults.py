"""What a REST handler did not foresee, and how much a request may bring."""

import pytest
import sqlalchemy as sa

from server.message import Message
from server.store.engine import Store
from server.store.messages import append_messages
from tests.server.http.site import ALICE, EPOCH, Site, add_session
from tests.server.http.test_tasks import made


async def test_a_fault_is_answered_and_logged_without_what_people_wrote(
    site: Site, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    async with store.write() as db:
        await add_session(db, "s1", "alice")
        await append_messages(db, "s1", [Message("m1", "user", "hi", EPOCH)])
        broken = sa.text("UPDATE message SET metadata_json = :text")
        await db.execute(broken, {"text": '{"what somebody wrote'})
    async with site.http.get("/api/sessions/s1/messages", headers=ALICE) as response:
        assert response.status == 500
        error = (await response.json())["error"]
    assert (error["code"], error["retryable"]) == ("internal", True)
    assert "[http] GET failed error=" in caplog.text
    assert "in load_page" in caplog.text
    assert "somebody" not in caplog.text


async def test_a_prompt_of_20_000_characters_is_taken_however_it_is_escaped(site: Site) -> None:
    prompt = "请" * 20_000
    task = await made(site, prompt=prompt)
    assert task["prompt"] == prompt
