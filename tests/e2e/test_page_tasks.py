"""Scheduled tasks on the page."""

import asyncio
import json
import re
from dataclasses import dataclass, field
from typing import Any

import pytest
from playwright.async_api import Locator, Page, Route, expect

from tests.e2e.browser import Open, Site, ask, said
from tests.fakes.llm import forever, refuse, reply

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def opened(site: Site) -> Page:
    """A tab that shows the list."""
    page = await site.signed_in()
    await page.get_by_role("link", name="Scheduled tasks").click()
    await expect(page.get_by_role("link", name="New scheduled task")).to_be_visible()
    return page


async def fill(page: Page, what: str, cron: str, zone: str = "Asia/Shanghai") -> None:
    """Fill in the form of a new task that comes by the calendar."""
    await page.get_by_role("link", name="New scheduled task").click()
    await page.get_by_label("What to do").fill(what)
    await page.get_by_text("By the calendar").click()
    await page.get_by_label("Cron expression").fill(cron)
    await page.get_by_label("Time zone").fill(zone)


async def made(page: Page, what: str, cron: str = "0 9 * * 1-5") -> None:
    """Make a task; the page shows it by itself."""
    await fill(page, what, cron)
    await page.get_by_role("button", name="Create").click()
    await expect(page.get_by_role("heading", name="Runs")).to_be_visible()


def runs(page: Page) -> Locator:
    """What became of the open task's due times."""
    return page.locator(".task-runs > li")


async def stored(page: Page) -> list[dict[str, Any]]:
    """The tasks as the server has them."""
    text = await page.evaluate("async () => (await fetch('/api/tasks')).text()")
    tasks: list[dict[str, Any]] = json.loads(text)["tasks"]
    return tasks


async def test_what_is_wrong_with_a_task_stands_at_its_field(open_page: Open) -> None:
    async with open_page([], HEADWAY_LOCALE="en") as site:
        page = await opened(site)
        await expect(page.get_by_text("No scheduled tasks yet")).to_be_visible()
        await fill(page, "Sum it up", "0 25 * * *")
        create = page.get_by_role("button", name="Create")
        await create.click()
        field = page.get_by_label("Cron expression")
        await expect(field).to_be_focused()
        await expect(field).to_have_attribute("aria-invalid", "true")
        await expect(field).to_have_accessible_description(re.compile("the hour, is wrong"))
        await field.fill("0 9 * * 1-5")
        zone = page.get_by_label("Time zone")
        await zone.fill("Mars/Olympus")
        await create.click()
        await expect(zone).to_be_focused()
        await expect(field).to_have_attribute("aria-invalid", "false")
        await zone.fill("Europe/Berlin")
        await page.get_by_label("What to do").fill(" ")
        await create.click()
        await expect(page.get_by_label("What to do")).to_be_focused()
        await page.get_by_text("At intervals").click()
        await page.get_by_label("What to do").fill("Sum it up")
        await page.get_by_label("Interval", exact=True).fill("")
        await create.click()
        await expect(page.get_by_label("Interval", exact=True)).to_be_focused()
        assert await stored(page) == []


async def test_a_task_is_listed_with_its_next_time_in_its_own_zone(open_page: Open) -> None:
    async with open_page([]) as site:
        page = await opened(site)
        await fill(page, "Sum up what happened", "30 7 1 1 *", "Pacific/Auckland")
        await page.get_by_label("Name", exact=True).fill("New year")
        await page.get_by_role("button", name="Create").click()
        for _ in range(2):
            facts = page.locator(".task-facts")
            await expect(facts).to_contain_text("30 7 1 1 *")
            await expect(facts).to_contain_text(re.compile(r"Jan 1.*07:30.*Pacific/Auckland"))
            await expect(page.locator(".task-prompt")).to_have_text("Sum up what happened")
            await page.reload()
        await page.get_by_role("link", name="Back to Scheduled tasks").click()
        row = page.locator(".task")
        await expect(row).to_have_count(1)
        await expect(row).to_contain_text(re.compile(r"New year.*Active.*07:30", re.S))


async def test_a_run_by_hand_leads_to_its_session_and_back(open_page: Open) -> None:
    async with open_page([reply("All is quiet.")]) as site:
        page = await opened(site)
        await made(page, "Look around")
        await expect(page.get_by_text("It has not run yet.")).to_be_visible()
        await page.get_by_role("button", name="Run now").click()
        await expect(runs(page)).to_have_count(1)
        await expect(runs(page).locator(".dot.COMPLETED")).to_be_visible()
        await expect(runs(page)).to_contain_text("by hand")
        await runs(page).get_by_role("link").click()
        await expect(page.get_by_text("All is quiet.")).to_be_visible()
        assert await said(page) == ["Look around", "All is quiet."]
        await page.get_by_role("link", name="Back to Scheduled tasks").click()
        await expect(page.locator(".task")).to_contain_text("Completed")


async def test_a_task_is_paused_resumed_changed_and_deleted(open_page: Open) -> None:
    async with open_page([]) as site:
        page = await opened(site)
        await made(page, "Look around")
        [before] = await stored(page)
        await page.get_by_role("button", name="Pause").click()
        await expect(page.locator(".task-status")).to_have_text("Paused")
        await page.get_by_role("button", name="Resume").click()
        await expect(page.locator(".task-status")).to_have_text("Active")
        await page.get_by_role("link", name="Edit").click()
        await expect(page.get_by_label("Cron expression")).to_have_value("0 9 * * 1-5")
        await page.get_by_label("Name", exact=True).fill("The rounds")
        await page.get_by_label("When a time was missed").select_option(label="Run if not too late")
        await page.get_by_label("At most this late").fill("90")
        await page.get_by_label("Unit").select_option(label="minutes")
        await page.get_by_role("button", name="Save").click()
        await expect(page.get_by_role("heading", name="The rounds")).to_be_visible()
        await expect(page.locator(".task-facts")).to_contain_text("90 minutes")
        [after] = await stored(page)
        changed = {key for key in after if after[key] != before[key]}
        assert changed == {"title", "missedPolicy", "missedWithinSeconds", "updatedAt"}
        await page.get_by_role("button", name="Delete").click()
        dialog = page.get_by_role("dialog")
        await expect(dialog).to_contain_text("The rounds")
        await dialog.get_by_role("button", name="Delete").click()
        await expect(page.get_by_text("No scheduled tasks yet")).to_be_visible()
        assert await stored(page) == []


@dataclass
class Held:
    """An answer of the server that is on its way to the page; later ones pass."""

    came: asyncio.Event = field(default_factory=asyncio.Event)
    go: asyncio.Event = field(default_factory=asyncio.Event)
    is_taken: bool = False

    async def hold(self, route: Route) -> None:
        """Let the server answer, and keep the first answer back."""
        if self.is_taken:
            await route.continue_()
            return
        self.is_taken = True
        response = await route.fetch()
        self.came.set()
        await self.go.wait()
        await route.fulfill(response=response)


async def test_a_list_that_was_asked_for_before_a_change_does_not_undo_it(
    open_page: Open,
) -> None:
    async with open_page([]) as site:
        page = await opened(site)
        await made(page, "Look around")
        old = Held()
        await page.route("**/api/tasks?*", old.hold)
        await page.get_by_role("link", name="Edit").click()  # an open task is read anew
        await page.get_by_role("link", name="Cancel").click()
        await asyncio.wait_for(old.came.wait(), 10)
        await page.get_by_role("button", name="Pause").click()
        await expect(page.locator(".task-status")).to_have_text("Paused")
        async with page.expect_response("**/api/tasks?*"):
            async with page.expect_response("**/api/tasks?*"):
                old.go.set()
        await expect(page.locator(".task-status")).to_have_text("Paused")
        await page.get_by_role("button", name="Resume").click()
        await expect(page.locator(".task-status")).to_have_text("Active")


async def test_a_press_counts_while_the_one_before_it_is_still_being_answered(
    open_page: Open,
) -> None:
    async with open_page([]) as site:
        page = await opened(site)
        await made(page, "Look around")
        slow = Held()
        await page.route("**/pause", slow.hold)
        await page.get_by_role("button", name="Pause").click()
        await asyncio.wait_for(slow.came.wait(), 10)
        await page.get_by_role("link", name="Edit").click()  # the list tells of it first
        await page.get_by_role("link", name="Cancel").click()
        await expect(page.locator(".task-status")).to_have_text("Paused")
        asked: list[str] = []
        page.on("request", lambda request: asked.append(f"{request.method} {request.url}"))
        resume = page.get_by_role("button", name="Resume")
        await resume.click()
        await expect(resume).to_be_disabled()
        early = [request for request in asked if request.startswith("POST")]
        assert early == [], "the answers would come in any order"
        async with page.expect_response("**/resume"):
            slow.go.set()
        await expect(page.locator(".task-status")).to_have_text("Active")
        assert [task["status"] for task in await stored(page)] == ["ACTIVE"]


async def test_a_task_that_fails_too_often_says_why_it_is_paused(open_page: Open) -> None:
    async with open_page(forever(refuse(401)), HEADWAY_LOCALE="en") as site:
        page = await opened(site)
        await fill(page, "Look around", "0 9 * * *")
        await page.get_by_label("Pause after failures").fill("2")
        await page.get_by_role("button", name="Create").click()
        for number in (1, 2):
            await page.get_by_role("button", name="Run now").click()
            await expect(runs(page).locator(".dot.FAILED")).to_have_count(number)
        await expect(page.locator(".task-status")).to_have_text("Paused")
        await expect(page.locator(".task-trouble")).to_contain_text("Failed 2 times in a row")
        await expect(runs(page).first.locator(".task-run-reason")).not_to_be_empty()
        await page.get_by_role("button", name="Resume").click()
        await expect(page.locator(".task-trouble")).to_have_count(0)


async def test_a_result_is_told_in_the_session_that_was_chosen(open_page: Open) -> None:
    async with open_page([reply("hello"), reply("All is quiet.")]) as site:
        page = await site.signed_in()
        await ask(page, "a place for news")
        await expect(page.locator(".answer")).to_have_count(1)
        address = page.url
        await expect(page.locator("h1")).not_to_have_text("a place for news")  # it gets a name
        title = await page.locator("h1").inner_text()
        await page.get_by_role("link", name="Scheduled tasks").click()
        await fill(page, "Look around", "0 9 * * *")
        await page.get_by_label("Tell the result in").select_option(label=title)
        await page.get_by_role("button", name="Create").click()
        await page.get_by_role("button", name="Run now").click()
        await expect(runs(page)).to_contain_text(re.compile(r"· told$"))
        await page.goto(address)
        await expect(page.get_by_text("All is quiet.")).to_be_visible()


async def test_tasks_have_room_on_a_phone(open_page: Open) -> None:
    async with open_page([]) as site:
        page = await opened(site)
        await made(page, "word" * 200)
        await page.set_viewport_size({"width": 360, "height": 740})
        for name in ("Edit", "Cancel", "Back to Scheduled tasks"):
            assert await page.evaluate("() => document.documentElement.scrollWidth") == 360
            inner = "() => document.querySelector('.tasks-scroller').scrollWidth"
            assert await page.evaluate(inner) <= 360
            await page.get_by_role("link", name=name).click()
        await expect(page.locator(".task-list .task")).to_be_in_viewport()
