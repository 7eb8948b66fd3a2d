"""Side questions and subagents on the page: beside their session, and by themselves."""

import asyncio
import re
from collections.abc import Callable

import pytest
from playwright.async_api import Locator, Page, expect

from tests.e2e.browser import Open, ask, said
from tests.fakes.llm import Play, Quirks, Recorded, call, refuse, reply

pytestmark = pytest.mark.asyncio(loop_scope="session")

LONG = "".join(f"[{number}] " for number in range(60))


def first_words(request: Recorded) -> str:
    """What the session of *request* began with."""
    return str(next(m["content"] for m in request.messages if m["role"] == "user"))


def last_words(request: Recorded) -> str:
    """What was said last."""
    return str(request.messages[-1]["content"])


def panel(page: Page) -> Locator:
    """What stands beside the open session."""
    return page.locator("aside.side")


def main(page: Page) -> Locator:
    """The open session."""
    return page.locator("main")


def answering(rest: asyncio.Event) -> Callable[[Recorded], Play]:
    """A model that talks until *rest* in the main session and answers questions aside at once."""

    def play(request: Recorded) -> Play:
        if "aside" in last_words(request):
            return reply("An answer beside it.")
        return reply(LONG, quirks=Quirks(hold_at=20, hold=rest))

    return play


# Side questions


async def test_a_side_question_is_answered_while_its_session_goes_on(open_page: Open) -> None:
    rest = asyncio.Event()
    async with open_page(answering(rest)) as site:
        page = await site.signed_in()
        await ask(page, "count")
        await expect(main(page).get_by_text("[19]")).to_be_visible()
        await page.get_by_role("button", name="Ask aside", exact=True).click()
        box = page.get_by_label("Side message")
        await expect(box).to_be_focused()
        await box.fill("aside: how far?")
        await box.press("Enter")
        await expect(panel(page).get_by_text("An answer beside it.")).to_be_visible()
        await expect(panel(page).locator(".is-pending")).to_have_count(0)
        assert len(await said(main(page))) == 2
        await expect(main(page).locator(".status.RUNNING")).to_be_visible()
        child = page.locator(".relatives .session")
        await expect(child).to_have_count(1)
        await expect(child.locator(".dot.COMPLETED")).to_be_visible()
        await expect(child.locator(".badge")).to_have_text("side question")
        rest.set()
        await expect(main(page).get_by_text("[59]")).to_be_visible()
        assert await said(main(page)) == ["count", LONG.strip()]
        assert await said(panel(page)) == ["aside: how far?", "An answer beside it."]
        await page.reload()
        await expect(panel(page).get_by_text("An answer beside it.")).to_be_visible()
        assert await said(main(page)) == ["count", LONG.strip()]


async def test_a_side_question_goes_on_and_closes_without_a_trace_in_its_session(
    open_page: Open,
) -> None:
    rest = asyncio.Event()
    rest.set()
    async with open_page(answering(rest)) as site:
        page = await site.signed_in()
        await ask(page, "count")
        await expect(main(page).get_by_text("[59]")).to_be_visible()
        box = page.get_by_label("Message", exact=True)
        await box.fill("aside: once")
        await box.press("Alt+Enter")
        await expect(panel(page).get_by_text("An answer beside it.")).to_be_visible()
        await expect(box).to_have_value("")
        side = page.get_by_label("Side message")
        await side.fill("aside: twice")
        await side.press("Enter")
        await expect(panel(page).locator(".answer")).to_have_count(2)
        await side.press("Escape")
        await expect(panel(page)).to_have_count(0)
        await expect(box).to_be_focused()
        assert await said(page) == ["count", LONG.strip()]
        child = page.locator(".relatives a")
        await child.click()
        await expect(panel(page).locator(".answer")).to_have_count(2)
        await page.get_by_role("button", name="Ask aside", exact=True).click()
        await expect(panel(page).locator(".answer")).to_have_count(0)
        await side.press("Escape")
        await expect(panel(page)).to_have_count(0)
        await child.click()
        await expect(panel(page).locator(".answer")).to_have_count(2)


async def test_a_side_question_sees_the_history_up_to_its_message(open_page: Open) -> None:
    script = [reply("early answer"), reply("late answer"), reply("An answer beside it.")]
    async with open_page(script) as site:
        page = await site.signed_in()
        for number, text in enumerate(("early question", "late question"), start=1):
            await ask(page, text)
            await expect(page.locator(".answer .row-actions")).to_have_count(number)
        await page.locator(".answer").first.hover()
        await page.get_by_role("button", name="Ask aside from here").nth(1).click()
        await expect(panel(page).locator("blockquote")).to_have_text("early answer")
        await ask_aside(page, "aside: and then?")
        await expect(panel(page).get_by_text("An answer beside it.")).to_be_visible()
        seen = site.gateway.requests[2].body.decode()
        assert "early answer" in seen
        assert "late question" not in seen
        assert await said(panel(page)) == ["aside: and then?", "An answer beside it."]
        await expect(panel(page).get_by_role("button", name="Load older messages")).to_have_count(0)


async def ask_aside(page: Page, text: str) -> None:
    """Write *text* into the panel and send it."""
    box = page.get_by_label("Side message")
    await box.fill(text)
    await box.press("Enter")


async def test_a_side_question_that_fails_says_so_beside_its_session_alone(
    open_page: Open,
) -> None:
    def play(request: Recorded) -> Play:
        return refuse(401) if "aside" in last_words(request) else reply("fine")

    async with open_page(play) as site:
        page = await site.signed_in()
        await ask(page, "hello")
        await expect(page.locator(".answer")).to_have_count(1)
        await page.get_by_role("button", name="Ask aside", exact=True).click()
        await ask_aside(page, "aside: does it work?")
        await expect(panel(page).locator(".error-card")).to_contain_text("model_auth")
        await expect(main(page).locator(".error-card")).to_have_count(0)
        await expect(page.locator(".relatives .dot.FAILED")).to_be_visible()
        await expect(page.locator(".sessions > .session > .session-line .dot")).to_have_class(
            "dot COMPLETED"
        )


async def test_a_side_question_can_be_opened_by_itself_and_leads_back(open_page: Open) -> None:
    rest = asyncio.Event()
    rest.set()
    async with open_page(answering(rest)) as site:
        page = await site.signed_in()
        await ask(page, "count")
        await expect(main(page).get_by_text("[59]")).to_be_visible()
        await page.get_by_role("button", name="Ask aside", exact=True).click()
        await ask_aside(page, "aside: alone?")
        await expect(panel(page).get_by_text("An answer beside it.")).to_be_visible()
        await page.get_by_role("link", name="Open by itself").click()
        await expect(panel(page)).to_have_count(0)
        await expect(main(page).get_by_text("An answer beside it.")).to_be_visible()
        await page.reload()
        await expect(main(page).get_by_text("An answer beside it.")).to_be_visible()
        await page.get_by_role("link", name=re.compile("^Back to ")).click()
        await expect(main(page).get_by_text("[59]")).to_be_visible()


async def test_on_a_phone_a_side_question_is_a_view_of_its_own(open_page: Open) -> None:
    rest = asyncio.Event()
    async with open_page(answering(rest)) as site:
        page = await site.signed_in()
        await page.set_viewport_size({"width": 360, "height": 740})
        await ask(page, "count")
        await expect(main(page).get_by_text("[19]")).to_be_visible()
        await page.get_by_role("button", name="Ask aside", exact=True).click()
        await ask_aside(page, "aside: here?")
        await expect(panel(page).get_by_text("An answer beside it.")).to_be_in_viewport()
        await expect(main(page)).to_have_attribute("inert", "")
        assert await page.evaluate("() => document.documentElement.scrollWidth") == 360
        rest.set()
        await page.get_by_role("button", name="Back to the main session").click()
        await expect(main(page).get_by_text("[59]")).to_be_visible()
        await page.go_back()
        await expect(panel(page).get_by_text("An answer beside it.")).to_be_in_viewport()


# Subagents


async def test_a_subagent_at_work_is_seen_at_its_call_and_in_its_own_log(open_page: Open) -> None:
    rest = asyncio.Event()

    def play(request: Recorded) -> Play:
        if "look it up" in first_words(request):
            return reply("Found it in the cellar.", quirks=Quirks(hold_at=2, hold=rest))
        if request.messages[-1]["role"] == "tool":
            return reply("The subagent found it.")
        return reply(calls=[call("spawn_subagent", {"task": "look it up"})])

    async with open_page(play) as site:
        page = await site.signed_in()
        await ask(page, "find it")
        link = main(page).locator(".subagent")
        await expect(link).to_contain_text("Running")
        await expect(page.locator(".relatives .dot.RUNNING")).to_be_visible()
        await link.click()
        await expect(panel(page).get_by_text("Found")).to_be_visible()
        await expect(panel(page).locator(".badge")).to_have_text("subagent")
        rest.set()
        await expect(panel(page).get_by_text("Found it in the cellar.")).to_be_visible()
        await expect(main(page).get_by_text("The subagent found it.")).to_be_visible()
        await expect(link).to_contain_text("Completed")
        assert await said(main(page)) == ["find it", "The subagent found it."]
        await page.get_by_role("button", name="Back to the main session").click()
        await page.reload()
        await expect(link).to_contain_text("Completed")
        await link.click()
        await expect(panel(page).get_by_text("Found it in the cellar.")).to_be_visible()


async def test_a_failed_subagent_says_why_and_its_session_goes_on(open_page: Open) -> None:
    def play(request: Recorded) -> Play:
        if "break" in first_words(request):
            return refuse(401)
        if request.messages[-1]["role"] == "tool":
            return reply("It broke, so I did it myself.")
        return reply(calls=[call("spawn_subagent", {"task": "break"})])

    async with open_page(play) as site:
        page = await site.signed_in()
        await ask(page, "try it")
        await expect(main(page).get_by_text("It broke, so I did it myself.")).to_be_visible()
        link = main(page).locator(".subagent")
        await expect(link.locator(".dot.FAILED")).to_be_visible()
        await expect(link.locator(".subagent-reason")).not_to_be_empty()
        await expect(main(page).locator(".error-card")).to_have_count(0)
        await expect(page.locator(".relatives .dot.FAILED")).to_be_visible()
