"""The page in a real browser, before the running server and a scripted model."""

import asyncio
import io
import re

import pytest
from PIL import Image
from playwright.async_api import FilePayload, Page, expect

from tests.e2e.browser import TOKEN, Open, ask, said
from tests.fakes.llm import NEVER, Quirks, call, forever, reply

pytestmark = pytest.mark.asyncio(loop_scope="session")

SAME_SEARCH = reply(calls=[call("grep_search", {"pattern": "group name", "path": "."})])


def png(colour: str = "teal") -> bytes:
    """A small picture."""
    data = io.BytesIO()
    Image.new("RGB", (32, 16), colour).save(data, "PNG")
    return data.getvalue()


# Login


async def test_a_login_link_lets_in_and_leaves_no_token_in_the_address(open_page: Open) -> None:
    async with open_page([]) as site:
        page = await site.signed_in()
        assert "token" not in page.url
        await page.reload()
        await expect(page.get_by_label("Message", exact=True)).to_be_visible()


async def test_a_wrong_token_is_refused_and_the_right_one_lets_in(open_page: Open) -> None:
    async with open_page([]) as site:
        page = await site.tab()
        await page.goto(site.url)
        field = page.get_by_label("Access token")
        await field.fill("wrong")
        await field.press("Enter")
        await expect(page.get_by_role("alert")).to_have_text("That token is not right.")
        await field.fill(TOKEN)
        await field.press("Enter")
        await expect(page.get_by_label("Message", exact=True)).to_be_visible()


async def test_signing_out_shows_the_login_in_every_tab(open_page: Open) -> None:
    async with open_page([]) as site:
        page = await site.signed_in()
        other = await site.tab(page.context)
        await other.goto(site.url)
        await expect(other.get_by_label("Message", exact=True)).to_be_visible()
        await page.get_by_role("button", name="Sign out").click()
        await expect(page.get_by_label("Access token")).to_be_visible()
        site.line.cut()
        site.line.mend()
        await expect(other.get_by_label("Access token")).to_be_visible()


# Streaming


async def test_an_answer_grows_as_markdown_and_a_reload_shows_the_same(open_page: Open) -> None:
    rest = asyncio.Event()
    text = (
        "# Plan\n\nFirst **this**.\n\n| a | b |\n| - | -: |\n| 1 | 2 |\n\n```python\nx = 1\n```\n"
    )
    quirks = Quirks(piece_chars=6, hold_at=6, hold=rest)
    async with open_page([reply(text, reasoning="Let me see.", quirks=quirks)]) as site:
        page = await site.signed_in()
        await ask(page, "make a plan")
        log = page.get_by_role("log")
        await expect(log.get_by_role("heading", name="Plan")).to_be_visible()
        await expect(log).to_have_attribute("aria-busy", "true")
        await expect(page.get_by_role("button", name="Stop")).to_be_visible()
        rest.set()
        await expect(log).to_have_attribute("aria-busy", "false")
        await _assert_plan(page)
        await page.reload()
        await expect(log.get_by_role("heading", name="Plan")).to_be_visible()
        await _assert_plan(page)


async def _assert_plan(page: Page) -> None:
    log = page.get_by_role("log")
    assert await log.locator("strong").all_inner_texts() == ["this"]
    assert await log.get_by_role("cell").all_inner_texts() == ["1", "2"]
    assert await log.locator(".code-head span").all_inner_texts() == ["python"]
    await log.locator(".reasoning summary").click()
    await expect(log.get_by_text("Let me see.")).to_be_visible()


async def test_hostile_text_runs_nothing_and_loads_nothing_from_elsewhere(open_page: Open) -> None:
    text = (
        "<script>window.hit = 1</script><img src=x onerror='window.hit = 1'>\n\n"
        "![chart](https://tracker.invalid/a.png) [bad](javascript:window.hit=1)\n\n"
        "<b class='error-card' style='position:fixed' onclick='window.hit=1'>bold</b>"
        "<iframe src='https://tracker.invalid'></iframe><form action='//x.invalid'></form>"
    )
    async with open_page([reply(text)]) as site:
        page = await site.signed_in()
        await ask(page, "hello")
        answer = page.locator(".answer")
        await expect(answer.get_by_text("bold")).to_be_visible()
        assert await page.evaluate("() => window.hit") is None
        assert await answer.locator("img, script, iframe, form, [style], [onclick]").count() == 0
        chart = answer.get_by_role("link", name="chart")
        await expect(chart).to_have_attribute("href", "https://tracker.invalid/a.png")
        await expect(chart).to_have_attribute("rel", re.compile("noopener"))
        assert await answer.locator("a[href^='javascript']").count() == 0
        assert await answer.locator("b").get_attribute("class") is None


async def test_a_second_tab_sees_the_question_and_the_answer(open_page: Open) -> None:
    async with open_page([reply("one"), reply("two")]) as site:
        page = await site.signed_in()
        await ask(page, "first")
        await expect(page.locator(".answer")).to_have_count(1)
        other = await site.tab(page.context)
        await other.goto(page.url)
        await expect(other.locator(".answer")).to_have_count(1)
        await ask(page, "second")
        await expect(other.get_by_text("two")).to_be_visible()
        assert await said(other) == ["first", "one", "second", "two"]


async def test_a_reload_in_mid_stream_loses_and_doubles_nothing(open_page: Open) -> None:
    rest = asyncio.Event()
    text = "".join(f"[{number}] " for number in range(60))
    async with open_page([reply(text, quirks=Quirks(hold_at=20, hold=rest))]) as site:
        page = await site.signed_in()
        await ask(page, "count")
        await expect(page.get_by_text("[20]")).to_be_visible()
        await page.reload()
        await expect(page.get_by_text("[20]")).to_be_visible()
        rest.set()
        await expect(page.get_by_text("[59]")).to_be_visible()
        assert await said(page) == ["count", text.strip()]


async def test_a_broken_line_is_told_and_loses_and_doubles_nothing(open_page: Open) -> None:
    rest = asyncio.Event()
    text = "".join(f"[{number}] " for number in range(60))
    async with open_page(
        [reply(text, quirks=Quirks(hold_at=20, hold=rest)), reply("later")]
    ) as site:
        page = await site.signed_in()
        await ask(page, "count")
        await expect(page.get_by_text("[20]")).to_be_visible()
        site.line.cut()
        await expect(page.locator(".banner")).to_be_visible()
        await ask(page, "written meanwhile")
        await expect(page.get_by_text("Will be sent once connected")).to_be_visible()
        rest.set()
        site.line.mend()
        await expect(page.locator(".banner")).to_have_count(0)
        await expect(page.get_by_text("later")).to_be_visible()
        assert await said(page) == ["count", text.strip(), "written meanwhile", "later"]


# How a run ends


async def test_a_run_without_progress_says_why_after_a_reload_too(open_page: Open) -> None:
    async with open_page(forever(SAME_SEARCH)) as site:
        page = await site.signed_in()
        await ask(page, "find it")
        card = page.locator(".error-card")
        await expect(card).to_be_visible(timeout=30_000)
        await expect(card).to_contain_text("no_progress_loop")
        reason = await card.locator(".error-reason").inner_text()
        assert "grep_search" in reason
        assert await page.locator(".tool").count() == 15
        await expect(page.locator(".session .dot.FAILED")).to_be_visible()
        await page.reload()
        await expect(card.locator(".error-reason")).to_have_text(reason)
        assert await page.locator(".tool").count() == 15


async def test_a_failed_run_can_be_retried(open_page: Open) -> None:
    script = iter([*[SAME_SEARCH] * 15, reply("found it")])
    async with open_page(lambda _: next(script)) as site:
        page = await site.signed_in()
        await ask(page, "find it")
        await page.locator(".error-card").get_by_role("button", name="Retry").click()
        await expect(page.get_by_text("found it")).to_be_visible()
        await expect(page.locator(".error-card")).to_have_count(0)
        assert await page.locator(".tool").count() == 0
        assert await said(page) == ["find it", "found it"]
        await page.reload()
        await expect(page.get_by_text("found it")).to_be_visible()
        assert await said(page) == ["find it", "found it"]


async def test_stop_keeps_the_partial_text_and_says_so_after_a_reload_too(open_page: Open) -> None:
    quirks = Quirks(hold_at=4, hold=NEVER)
    async with open_page([reply("half of a sentence that never ends", quirks=quirks)]) as site:
        page = await site.signed_in()
        await ask(page, "talk")
        await expect(page.get_by_text("half of")).to_be_visible()
        await page.get_by_role("button", name="Stop").click()
        note = page.locator(".note", has_text="Stopped")
        await expect(note).to_be_visible(timeout=2_000)
        before = await said(page)
        assert before[1].startswith("half of")
        await page.reload()
        await expect(note).to_be_visible()
        assert await said(page) == before


# While a run goes on


async def test_messages_queue_while_busy_and_can_be_removed(open_page: Open) -> None:
    rest = asyncio.Event()
    async with open_page(
        [reply("slow answer", quirks=Quirks(hold_at=1, hold=rest)), reply("next answer")]
    ) as site:
        page = await site.signed_in()
        await ask(page, "first")
        await expect(page.get_by_role("button", name="Stop")).to_be_visible()
        await ask(page, "wanted")
        await ask(page, "unwanted")
        chips = page.locator(".chip")
        await expect(chips).to_have_count(2)
        await page.get_by_role("button", name="Remove from the queue: unwanted").click()
        await expect(chips).to_have_count(1)
        rest.set()
        await expect(page.get_by_text("next answer")).to_be_visible()
        assert await said(page) == ["first", "slow answer", "wanted", "next answer"]


async def test_a_steered_message_joins_the_run(open_page: Open) -> None:
    rest = asyncio.Event()
    first = reply("looking", calls=[call("list_dir")], quirks=Quirks(hold_at=1, hold=rest))
    async with open_page([first, reply("as you say")]) as site:
        page = await site.signed_in()
        await ask(page, "look")
        await expect(page.get_by_role("button", name="Stop")).to_be_visible()
        notes: FilePayload = {"name": "notes.txt", "mimeType": "text/plain", "buffer": b"hello"}
        await page.locator("input[type=file]").set_input_files(notes)
        await expect(page.locator(".attachments .ready")).to_have_count(1)
        await ask(page, "only here", keys="Control+Enter")
        await expect(page.locator(".chip")).to_contain_text("Joins at the next round")
        rest.set()
        await expect(page.get_by_text("as you say")).to_be_visible()
        await expect(page.get_by_role("link", name="notes.txt")).to_be_visible()
        assert await said(page) == ["look", "looking", "only here", "as you say"]
        await expect(page.locator(".chip")).to_have_count(0)


# Messages


async def test_a_tool_card_shows_arguments_result_and_picture(open_page: Open) -> None:
    calls = [
        call("view_image", {"path": "shot.png"}),
        call("read_file", {"path": "missing.txt"}),
    ]
    async with open_page([reply(calls=calls), reply("seen")]) as site:
        site.settings.workspace.mkdir(parents=True, exist_ok=True)
        (site.settings.workspace / "shot.png").write_bytes(png())
        page = await site.signed_in()
        await ask(page, "look")
        await expect(page.get_by_text("seen", exact=True)).to_be_visible()
        for _ in range(2):
            await _assert_cards(page)
            await page.reload()
            await expect(page.get_by_text("seen", exact=True)).to_be_visible()


async def _assert_cards(page: Page) -> None:
    seen, missing = page.locator(".tool").nth(0), page.locator(".tool").nth(1)
    await expect(seen.locator("img")).to_have_js_property("naturalWidth", 32)
    await expect(missing).to_have_class("tool failed")
    await missing.locator("summary").click()
    await expect(missing.locator("pre").first).to_contain_text('"path": "missing.txt"')
    await expect(missing.locator("pre").last).to_contain_text('"error"')


async def test_files_go_with_a_message_and_come_back_after_a_reload(open_page: Open) -> None:
    async with open_page([reply("got them")]) as site:
        page = await site.signed_in()
        files: list[FilePayload] = [
            {"name": "shot.png", "mimeType": "image/png", "buffer": png()},
            {"name": "notes.txt", "mimeType": "text/plain", "buffer": b"hello"},
        ]
        await page.locator("input[type=file]").set_input_files(files)
        await expect(page.locator(".attachments .ready")).to_have_count(2)
        await ask(page, "read these")
        await expect(page.get_by_text("got them")).to_be_visible()
        for _ in range(2):
            picture = page.locator(".user-row img")
            await expect(picture).to_have_js_property("naturalWidth", 32)
            await expect(page.get_by_role("link", name="notes.txt")).to_be_visible()
            await page.reload()
        assert "notes.txt" in site.gateway.requests[0].body.decode()


async def test_editing_a_message_starts_over_from_it_in_every_tab(open_page: Open) -> None:
    async with open_page([reply("one"), reply("two"), reply("three")]) as site:
        page = await site.signed_in()
        await ask(page, "first")
        await expect(page.get_by_text("one")).to_be_visible()
        await ask(page, "second")
        await expect(page.get_by_text("two")).to_be_visible()
        other = await site.tab(page.context)
        await other.goto(page.url)
        await expect(other.get_by_text("two")).to_be_visible()
        await page.locator(".user-row").first.hover()
        await page.get_by_role("button", name="Edit and resend").first.click()
        box = page.get_by_label("Message", exact=True)
        await expect(box).to_have_value("first")
        await ask(page, "better")
        for tab in (page, other):
            await expect(tab.get_by_text("three")).to_be_visible()
            assert await said(tab) == ["better", "three"]


async def test_a_command_leaves_no_message_waiting(open_page: Open) -> None:
    async with open_page(forever(reply("a summary"))) as site:
        page = await site.signed_in()
        await ask(page, "first")
        await expect(page.locator(".answer")).to_have_count(1)
        await ask(page, "/compact")
        await expect(page.get_by_role("log")).to_have_attribute("aria-busy", "false")
        await expect(page.locator(".is-pending")).to_have_count(0)


# Sessions and layout


async def test_sessions_are_found_renamed_and_deleted(open_page: Open) -> None:
    async with open_page([reply("one"), reply("two")]) as site:
        page = await site.signed_in()
        for text in ("about apples", "about pears"):
            await page.get_by_role("link", name="New session", exact=True).click()
            await ask(page, text)
            await expect(page.locator(".answer")).to_have_count(1)
        rows = page.locator(".session")
        await expect(rows).to_have_count(2)
        await rows.first.hover()
        await rows.first.get_by_role("button", name="Rename").click()
        field = page.get_by_label("Rename", exact=True)
        await field.fill("fruit of one kind")
        await field.press("Enter")
        await page.get_by_label("Search sessions").fill("FRUIT")
        await expect(rows).to_have_count(1)
        await expect(rows).to_contain_text("fruit of one kind")
        await rows.hover()
        await rows.get_by_role("button", name="Delete").click()
        await page.get_by_role("dialog").get_by_role("button", name="Delete").click()
        await expect(rows).to_have_count(0)
        await page.get_by_label("Search sessions").fill("")
        await expect(rows).to_have_count(1)
        await expect(page.get_by_text("What can I do for you?")).to_be_visible()


async def test_a_long_list_of_sessions_says_that_there_are_more(open_page: Open) -> None:
    create = """async () => {
        for (let number = 0; number <= 200; number++) {
            const body = JSON.stringify({ title: `number ${number}` });
            const headers = { "Content-Type": "application/json" };
            await fetch("/api/sessions", { method: "POST", headers, body });
        }
    }"""
    async with open_page([]) as site:
        page = await site.signed_in()
        cut = page.get_by_text("Only the latest 200 are shown. The search finds older ones.")
        await page.evaluate(create)
        await expect(page.locator(".session")).to_have_count(200)
        await expect(cut).to_be_attached()
        await page.get_by_label("Search sessions").fill("number 0")
        await expect(page.locator(".session")).to_have_count(1)
        await expect(cut).to_have_count(0)


async def test_what_the_server_says_to_developers_is_not_shown(open_page: Open) -> None:
    async with open_page([reply("one")]) as site:
        page = await site.signed_in()
        await ask(page, "about apples")
        row = page.locator(".session")
        await row.hover()
        await row.get_by_role("button", name="Rename").click()
        field = page.get_by_label("Rename", exact=True)
        await field.evaluate("field => field.removeAttribute('maxlength')")  # as in an older page
        await field.fill("x" * 600)
        await field.press("Enter")
        toast = page.locator(".toast")
        await expect(toast).to_contain_text("the server does not take this input")
        empty: FilePayload = {"name": "empty.txt", "mimeType": "text/plain", "buffer": b""}
        await page.locator("input[type=file]").set_input_files(empty)
        await expect(toast).to_have_text("empty.txt is empty")


async def test_a_reader_is_not_moved_and_can_jump_to_the_end(open_page: Open) -> None:
    rest = asyncio.Event()
    text = "\n\n".join(f"line {number}" for number in range(80))
    async with open_page([reply(text, quirks=Quirks(hold_at=60, hold=rest))]) as site:
        page = await site.signed_in()
        await ask(page, "write")
        await expect(page.get_by_text("line 40", exact=True)).to_be_in_viewport()
        await page.mouse.move(700, 300)
        await page.mouse.wheel(0, -600)
        jump = page.get_by_role("button", name="Jump to latest")
        await expect(jump).to_be_visible()
        top = await page.locator(".log-scroller").evaluate("box => box.scrollTop")
        rest.set()
        await expect(page.get_by_text("line 79", exact=True)).to_be_attached()
        assert await page.locator(".log-scroller").evaluate("box => box.scrollTop") == top
        await jump.click()
        await expect(page.get_by_text("line 79", exact=True)).to_be_in_viewport()
        await expect(jump).to_have_count(0)


async def test_a_phone_shows_the_sessions_in_a_drawer(open_page: Open) -> None:
    wide = "| a | b |\n| - | - |\n| " + "x" * 200 + " | y |\n\n```\n" + "z" * 300 + "\n```"
    async with open_page([reply(wide)]) as site:
        page = await site.signed_in()
        await page.set_viewport_size({"width": 360, "height": 740})
        await ask(page, "wide things")
        await expect(page.locator(".answer")).to_have_count(1)
        width = await page.evaluate("() => document.documentElement.scrollWidth")
        assert width == 360
        search = page.get_by_label("Search sessions")
        await expect(search).not_to_be_in_viewport()
        await page.get_by_role("button", name="Open the session list").click()
        await expect(search).to_be_in_viewport()
        await page.keyboard.press("Escape")
        await expect(search).not_to_be_in_viewport()


async def test_dark_mode_and_the_language_follow_the_system_and_the_switch(open_page: Open) -> None:
    async with open_page([]) as site:
        page = await site.signed_in()
        background = "() => getComputedStyle(document.body).backgroundColor"
        light = await page.evaluate(background)
        await page.emulate_media(color_scheme="dark")
        assert await page.evaluate(background) != light
        await page.get_by_role("button", name="Appearance").click()
        assert await page.evaluate(background) == light
        await page.get_by_role("button", name="中文").click()
        await expect(page.get_by_text("有什么可以帮你？")).to_be_visible()
        assert await page.locator("html").get_attribute("lang") == "zh-CN"
        await page.reload()
        await expect(page.get_by_text("有什么可以帮你？")).to_be_visible()
        assert await page.evaluate(background) == light


async def test_enter_that_chooses_a_word_of_an_input_method_sends_nothing(open_page: Open) -> None:
    async with open_page([]) as site:
        page = await site.signed_in()
        box = page.get_by_label("Message", exact=True)
        await box.fill("ni")
        await box.dispatch_event("keydown", {"key": "Enter", "isComposing": True})
        await box.dispatch_event("keydown", {"key": "Enter", "keyCode": 229})
        await expect(box).to_have_value("ni")
        assert site.gateway.requests == []
