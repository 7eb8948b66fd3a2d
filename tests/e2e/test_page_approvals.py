"""What a run asks of a person, on the page."""

import json
import re
from pathlib import Path

import pytest
from playwright.async_api import Locator, Page, WebSocketRoute, expect

from tests.e2e.browser import Open, Site, ask, said
from tests.fakes.llm import ScriptedReply, call, reply

PLAN = {"path": "plan.md", "content": "first\n"}
WRITES = reply("I write it down.", calls=[call("write_file", PLAN)])
ASKS = reply(
    calls=[call("ask_user", {"question": "Which one?", "options": ["The left", "The right"]})]
)

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest.fixture
def asking(tmp_path: Path) -> dict[str, str]:
    """Settings by which a person is asked before anything is written."""
    config = tmp_path / "config.toml"
    config.write_text('[approvals]\nweb = "writes"\n', "utf-8")
    return {"HEADWAY_CONFIG": str(config)}


def card(page: Page) -> Locator:
    """The open question."""
    return page.locator(".approval")


async def asked(page: Page, text: str = "go on") -> Locator:
    """Send *text* and wait for the question that comes of it."""
    await ask(page, text)
    await expect(card(page)).to_be_visible()
    return card(page)


async def results(site: Site, request: int) -> str:
    """What the model was sent in its *request*th request."""
    return (await site.gateway.wait_for_requests(request)).body.decode()


# May it be done


async def test_an_approved_call_runs_and_every_tab_sees_who_agreed(
    open_page: Open, asking: dict[str, str]
) -> None:
    async with open_page([WRITES, reply("It is written.")], **asking) as site:
        page = await site.signed_in()
        question = await asked(page)
        await expect(question.locator("pre")).to_contain_text('"path": "plan.md"')
        other = await site.signed_in("admin-token")
        await other.goto(page.url)
        await expect(card(other)).to_be_visible()
        assert not (site.settings.workspace / "plan.md").exists()
        await question.get_by_role("button", name="Approve").click()
        for tab in (page, other):
            await expect(tab.get_by_text("It is written.")).to_be_visible()
            await expect(tab.locator(".verdict.APPROVED")).to_contain_text("ann")
            await expect(card(tab)).to_have_count(0)
        assert (site.settings.workspace / "plan.md").read_text("utf-8") == "first\n"


async def test_a_refusal_and_its_reason_reach_the_model(
    open_page: Open, asking: dict[str, str]
) -> None:
    async with open_page([WRITES, reply("As you wish.")], **asking) as site:
        page = await site.signed_in()
        question = await asked(page)
        await question.get_by_label("Why not?").fill("not this file")
        await question.get_by_role("button", name="Deny").click()
        await expect(page.get_by_text("As you wish.")).to_be_visible()
        await expect(page.locator(".verdict.DENIED")).to_be_visible()
        await expect(page.locator(".tool")).to_have_class("tool failed")
        assert "not this file" in await results(site, 2)
        assert not (site.settings.workspace / "plan.md").exists()


async def test_edited_arguments_run_and_wrong_ones_cannot_be_sent(
    open_page: Open, asking: dict[str, str]
) -> None:
    async with open_page([WRITES, reply("It is written.")], **asking) as site:
        page = await site.signed_in()
        question = await asked(page)
        approve = question.get_by_role("button", name="Approve")
        await question.get_by_role("button", name="Edit arguments").click()
        editor = question.get_by_label("Arguments")
        for wrong, reason in (('{"path": }', "no valid JSON"), ("[1]", "must be a JSON object")):
            await editor.fill(wrong)
            await expect(question.locator(".field-fault")).to_contain_text(reason)
            await expect(editor).to_have_attribute("aria-invalid", "true")
            await expect(approve).to_be_disabled()
        await editor.fill('{"path": "other.md", "content": "second\\n"}')
        await question.get_by_role("button", name="Approve with changes").click()
        await expect(page.get_by_text("It is written.")).to_be_visible()
        assert (site.settings.workspace / "other.md").read_text("utf-8") == "second\n"
        assert not (site.settings.workspace / "plan.md").exists()


async def test_a_large_number_in_edited_arguments_is_not_rounded(
    open_page: Open, tmp_path: Path
) -> None:
    config = tmp_path / "config.toml"
    config.write_text('[approvals]\nweb = "always"\n', "utf-8")
    looks = reply(calls=[call("read_file", {"path": "plan.md", "limit": 1})])
    async with open_page([looks, reply("done")], HEADWAY_CONFIG=str(config)) as site:
        page = await site.signed_in()
        question = await asked(page)
        await question.get_by_role("button", name="Edit arguments").click()
        edited = '{"path": "plan.md", "limit": 12345678901234567890}'
        await question.get_by_label("Arguments").fill(edited)
        await question.get_by_role("button", name="Approve").click()
        await expect(page.get_by_text("done", exact=True).last).to_be_visible()
        assert "12345678901234567890" in await results(site, 2)


async def test_a_question_survives_a_reload_and_is_told_to_a_screen_reader(
    open_page: Open, asking: dict[str, str]
) -> None:
    async with open_page([WRITES, reply("It is written.")], **asking) as site:
        page = await site.signed_in()
        await asked(page)
        await page.reload()
        await expect(card(page).locator("pre")).to_contain_text("plan.md")
        await expect(page.locator(".tool")).to_have_class(re.compile(r"\bwaiting\b"))
        await expect(page.locator("main > [role=status]")).to_have_text(
            "Waiting for you: May write_file run?"
        )
        row = page.locator(".session")
        await expect(row.locator(".dot.WAITING")).to_have_accessible_name("Waiting for you")
        await expect(row.locator(".badge")).to_have_text("Waiting for you")
        approve = card(page).get_by_role("button", name="Approve")
        await approve.focus()
        await page.keyboard.press("Enter")
        await expect(page.get_by_text("It is written.")).to_be_visible()


class Ears:
    """Those of a tab, which may be stopped for all but the answers to its own requests."""

    def __init__(self) -> None:
        self.are_stopped = False

    async def on(self, page: Page) -> None:
        """Sit between *page* and the server from its next connection on."""
        await page.route_web_socket(re.compile("/ws$"), self._connected)

    def _connected(self, line: WebSocketRoute) -> None:
        server = line.connect_to_server()
        line.on_message(server.send)
        server.on_message(lambda frame: self._hear(line, str(frame)))

    def _hear(self, line: WebSocketRoute, frame: str) -> None:
        if not self.are_stopped or '"type":"res"' in frame:
            line.send(frame)


async def test_whoever_is_second_reads_who_was_first(
    open_page: Open, asking: dict[str, str]
) -> None:
    async with open_page([WRITES, reply("It is written.")], **asking) as site:
        page = await site.signed_in()
        await asked(page)
        other, ears = await site.signed_in("admin-token"), Ears()
        await ears.on(other)
        await other.goto(page.url)
        await other.reload()
        await expect(card(other)).to_be_visible()
        ears.are_stopped = True
        await card(page).get_by_role("button", name="Approve").click()
        await expect(page.get_by_text("It is written.")).to_be_visible()
        await card(other).get_by_role("button", name="Deny").click()
        await expect(other.get_by_text("Your choice did not count: ann was first")).to_be_visible()
        await expect(card(other)).to_have_count(0)
        assert (site.settings.workspace / "plan.md").exists()


async def test_the_time_that_is_left_is_shown_and_ends_the_question(
    open_page: Open, asking: dict[str, str]
) -> None:
    async with open_page([WRITES], **asking) as site:
        page = await site.tab()
        await page.clock.install()
        await page.goto(f"{site.url}/#token=ann-token")
        question = await asked(page)
        await expect(question.locator(".approval-left")).to_contain_text("h")
        await page.clock.fast_forward("23:55:30")
        await expect(question.locator(".approval-left")).to_contain_text(
            re.compile(r"[34]:\d\d left")
        )
        await page.clock.fast_forward("05:00")
        await expect(page.locator(".verdict")).to_contain_text("Expired")
        await expect(card(page)).to_have_count(0)


async def test_stop_ends_a_session_that_waits(open_page: Open, asking: dict[str, str]) -> None:
    async with open_page([WRITES, reply("Never.")], **asking) as site:
        page = await site.signed_in()
        await asked(page)
        await page.get_by_role("button", name="Stop").click()
        await expect(page.locator(".note", has_text="Stopped")).to_be_visible()
        await expect(card(page)).to_have_count(0)
        await expect(page.locator(".session .dot.CANCELLED")).to_be_visible()
        await page.reload()
        await expect(page.locator(".note", has_text="Stopped")).to_be_visible()
        assert not (site.settings.workspace / "plan.md").exists()
        assert len(site.gateway.requests) == 1


async def test_messages_queue_behind_a_question(open_page: Open, asking: dict[str, str]) -> None:
    script = [WRITES, reply("It is written."), reply("And that.")]
    async with open_page(script, **asking) as site:
        page = await site.signed_in()
        question = await asked(page)
        await ask(page, "one more thing")
        await expect(page.locator(".chip")).to_contain_text("one more thing")
        await question.get_by_role("button", name="Approve").click()
        await expect(page.get_by_text("And that.")).to_be_visible()
        assert await said(page) == [
            *("go on", "I write it down.", "It is written."),
            *("one more thing", "And that."),
        ]


# What is the answer


async def answered(page: Page, answer: str) -> None:
    """Question and answer stand in the talk, now and after a reload."""
    for _ in range(2):
        await expect(page.get_by_text("So be it.")).to_be_visible()
        await expect(page.locator(".asked")).to_have_text("Which one?")
        assert await said(page) == ["go on", answer, "So be it."]
        await page.reload()


def to_question() -> list[ScriptedReply]:
    """A model that asks, and takes any answer."""
    return [ASKS, reply("So be it.")]


async def test_a_suggested_answer_is_one_click(open_page: Open) -> None:
    async with open_page(to_question()) as site:
        page = await site.signed_in()
        question = await asked(page)
        await question.get_by_role("button", name="The right").click()
        await answered(page, "The right")
        heard = (await site.gateway.wait_for_requests(2)).messages[-1]
        assert json.loads(heard["content"]) == {"answer": "The right"}


async def test_an_answer_of_ones_own_is_written_at_the_question(open_page: Open) -> None:
    async with open_page(to_question()) as site:
        page = await site.signed_in()
        question = await asked(page)
        field = question.get_by_label("Another answer")
        await field.fill("Neither")
        await field.press("Enter")
        await answered(page, "Neither")


async def test_what_is_written_while_a_question_is_open_answers_it(open_page: Open) -> None:
    async with open_page(to_question()) as site:
        page = await site.signed_in()
        await asked(page)
        box = page.get_by_label("Message", exact=True)
        await expect(box).to_have_attribute("placeholder", "Write your answer…")
        await ask(page, "The one in the middle")
        await answered(page, "The one in the middle")
        await expect(box).to_have_value("")
        await expect(box).to_have_attribute("placeholder", "Write a message…")


async def test_a_question_can_be_left_without_an_answer(open_page: Open) -> None:
    async with open_page(to_question()) as site:
        page = await site.signed_in()
        question = await asked(page)
        await question.get_by_role("button", name="Do not answer").click()
        await expect(page.get_by_text("So be it.")).to_be_visible()
        await expect(page.locator(".verdict.DENIED")).to_be_visible()
        assert await said(page) == ["go on", "So be it."]


async def test_a_phone_has_room_for_a_question(open_page: Open, asking: dict[str, str]) -> None:
    long = {"path": "a/" * 80 + "plan.md", "content": "x" * 400}
    async with open_page([reply(calls=[call("write_file", long)])], **asking) as site:
        page = await site.signed_in()
        await page.set_viewport_size({"width": 360, "height": 740})
        question = await asked(page)
        await question.get_by_role("button", name="Edit arguments").click()
        await expect(question.get_by_label("Arguments")).to_be_visible()
        assert await page.evaluate("() => document.documentElement.scrollWidth") == 360
        box = await question.bounding_box()
        assert box is not None
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 360
