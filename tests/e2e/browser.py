"""A real browser before the running application, and a line between them that can be cut."""

import asyncio
import contextlib
import os
import shutil
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

import pytest
from playwright.async_api import (
    Browser,
    BrowserContext,
    Locator,
    Page,
    Request,
    async_playwright,
)

from server.app import create_app
from server.settings import Settings
from tests.fakes.llm import Script, ScriptedGateway, serve_gateway
from tests.house import ENVIRONMENT, is_title, settings_for
from tests.serve import serve

TOKEN = "ann-token"
ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
"""The browser asks nobody but the page's server, and runs as root in a container too."""


def find_chromium() -> str:
    """The browser of the system; without one the test is left out, or fails where all must run."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if path := shutil.which(name):
            return path
    if os.environ.get("HEADWAY_REQUIRE_ALL"):
        raise RuntimeError("no Chromium is installed")
    pytest.skip("no Chromium is installed")


class Line:
    """A relay to the server, as a network is one: it can break in the middle."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_down = False

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Relay one connection until it ends or is cut."""
        task = asyncio.current_task()
        assert task is not None, "runs as a task of the listening server"
        self._tasks.add(task)
        try:
            if not self._is_down:
                await self._relay(reader, writer)
        except ConnectionError:
            pass  # either end left
        finally:
            self._tasks.discard(task)
            writer.transport.abort()

    def cut(self) -> None:
        """End every connection, and each new one at once, until `mend`."""
        self._is_down = True
        for task in self._tasks:
            task.cancel()

    def mend(self) -> None:
        """Let new connections through again."""
        self._is_down = False

    async def close(self) -> None:
        """End every connection for good."""
        self.cut()
        if self._tasks:
            await asyncio.wait(set(self._tasks))

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(_copy(reader, inner_writer))
                both.create_task(_copy(inner_reader, writer))
        except* ConnectionError:
            pass
        finally:
            inner_writer.transport.abort()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    with contextlib.suppress(OSError):
        writer.write_eof()


@asynccontextmanager
async def open_line(url: str) -> AsyncIterator[tuple[str, Line]]:
    """A relay on a free port in front of *url*; gives its address and the relay."""
    line = Line(urlsplit(url).port or 0)
    server = await asyncio.start_server(line.connected, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", line
    finally:
        server.close()
        await line.close()
        await server.wait_closed()


@dataclass(frozen=True, slots=True)
class Site:
    """A browser before a running server."""

    url: str
    settings: Settings
    gateway: ScriptedGateway
    line: Line
    browser: Browser
    foreign: list[str] = field(default_factory=list)
    """Addresses elsewhere that a page asked for."""
    faults: list[str] = field(default_factory=list)
    """Errors that no page's script caught."""

    async def tab(self, context: BrowserContext | None = None) -> Page:
        """A tab; without *context* of a browser that knows nothing yet."""
        context = context or await self.browser.new_context(
            locale="en-US", viewport={"width": 1200, "height": 800}
        )
        page = await context.new_page()
        page.set_default_timeout(10_000)
        page.on("request", lambda request: self._asked(request))
        page.on("pageerror", lambda error: self.faults.append(str(error)))
        return page

    async def signed_in(self, token: str = TOKEN) -> Page:
        """A tab of somebody who followed a login link."""
        page = await self.tab()
        await page.goto(f"{self.url}/#token={token}")
        await page.get_by_label("Message", exact=True).wait_for()
        return page

    def _asked(self, request: Request) -> None:
        if not request.url.startswith((f"{self.url}/", "blob:", "data:")):
            self.foreign.append(request.url)


class Open(Protocol):
    """Opens a site whose model plays a script, with settings beyond the usual ones."""

    def __call__(self, script: Script, **variables: str) -> AbstractAsyncContextManager[Site]: ...


@asynccontextmanager
async def open_browser() -> AsyncIterator[Browser]:
    """A browser, on the event loop that it was opened on."""
    chromium = find_chromium()
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium, args=ARGUMENTS)
        try:
            yield browser
        finally:
            await browser.close()


@asynccontextmanager
async def open_site(
    browser: Browser, folder: Path, database_url: str, script: Script, **variables: str
) -> AsyncIterator[Site]:
    """The application with a scripted model, before a browser that knows nothing of it.

    Args:
        variables: Settings beyond the usual ones.

    Leaving forgets the pages, and checks that they asked nobody else and that no script failed.
    """
    async with (
        serve_gateway(script, title=is_title, strict=False) as gateway,
        _serve(
            settings := settings_for(folder, database_url, gateway.url, **variables)
        ) as inner_url,
        open_line(inner_url) as (url, line),
    ):
        site = Site(url, settings, gateway, line, browser)
        try:
            yield site
        finally:
            for context in browser.contexts:
                await context.close()
        assert site.foreign == []
        assert site.faults == []


@asynccontextmanager
async def _serve(settings: Settings) -> AsyncIterator[str]:
    async with serve(create_app(settings, ENVIRONMENT)) as url:
        yield url


async def ask(page: Page, text: str, *, keys: str = "Enter") -> None:
    """Write *text* into the composer and send it."""
    box = page.get_by_label("Message", exact=True)
    await box.fill(text)
    await box.press(keys)


async def said(page: Page | Locator) -> Sequence[str]:
    """What people and the model said there, in order."""
    return await page.locator(".bubble-text, .answer .markdown").all_inner_texts()
