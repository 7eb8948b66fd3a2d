"""A terminal client of the running server: what is typed goes in, what happens is printed."""

import asyncio
import contextlib
import signal
import sys
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, TextIO

import msgspec
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake

from server.errors import Locale, ServerError
from server.store.ids import new_id

SUBPROTOCOL = "agent.v1"
PROTOCOL = 1
ANSWER_SECONDS = 30.0
"""The server answers each request at once; work goes on in events."""

_TEXTS = {
    "ready": (
        "会话 {}。Ctrl-C 停止执行，Ctrl-D 退出。",
        "Session {}. Ctrl-C stops the run, Ctrl-D leaves.",
    ),
    "stopped": ("已停止", "Stopped"),
    "may_run": (
        "要执行 {0} 吗？{1}\n输入 y 同意，n 拒绝，或写下拒绝的理由：",
        "May {0} run? {1}\ny to agree, n to refuse, or say why not:",
    ),
    "question": ("{0}{1}\n请回答：", "{0}{1}\nYour answer:"),
    "refused": ("这个回答没有生效：{0}", "This answer did not count: {0}"),
    "queued": ("已排队，位置 {}。", "Queued at position {}."),
    "lost": ("与服务器的连接已断开。", "The connection to the server is lost."),
    "unreachable": (
        "无法连接 {}。请先运行 headway serve。",
        "Cannot reach {}. Run `headway serve` first.",
    ),
}


class ChatError(ServerError):
    """The conversation cannot go on; the text says why."""


class Frame(msgspec.Struct):
    """One frame of the server; what it may hold beyond this is not for a terminal."""

    type: str
    id: str | None = None
    ok: bool = False
    result: dict[str, Any] = {}
    error: dict[str, Any] = {}
    event: dict[str, Any] = {}
    seq: int = 0
    """Of an event: its number in the session's log."""


class Screen:
    """Folds a session's events into lines."""

    def __init__(self, out: TextIO, locale: Locale) -> None:
        self._out = out
        self._locale = locale
        self._is_mid_line = False
        self._tools: dict[str, str] = {}
        self._an_end = asyncio.Event()
        self._ended: set[str] = set()
        self.is_asked = False
        """The run that ended last asks something."""
        self.run_id: str | None = None
        """The run under way."""

    def say(self, key: str, *values: object) -> None:
        """One of our own sentences, on a line of its own."""
        self._line(_TEXTS[key][self._locale == "en"].format(*values))

    def show(self, event: Mapping[str, Any]) -> None:
        """What *event* means to a reader; events that mean nothing on a terminal are passed by."""
        match event:
            case {"type": "RUN_STARTED", "runId": str(run_id)}:
                self.run_id = run_id
                self.is_asked = False
            case {"type": "TEXT_MESSAGE_CONTENT", "delta": str(delta)}:
                self._write(delta)
            case {"type": "TEXT_MESSAGE_END"}:
                self._end_line()
            case {"type": "TOOL_CALL_START", "toolCallId": str(call_id), "toolCallName": str(name)}:
                self._tools[call_id] = name
            case {"type": "TOOL_CALL_RESULT", "toolCallId": str(call_id)}:
                self._show_result(call_id, event.get("metadata") or {})
            case {"type": "RUN_ERROR", "message": str(message)}:
                self._line(f"✗ {message}")
                self._end_run((event.get("metadata") or {}).get("runId"))
            case {"type": "RUN_FINISHED", "runId": str(run_id)}:
                outcome = (event.get("outcome") or {}).get("type")
                self.is_asked = outcome == "interrupt"
                self._show_end(outcome)
                self._end_run(run_id)

    async def ended(self, run_id: str) -> bool:
        """Wait for the end of a run; False if one before it asks something."""
        while run_id not in self._ended and not self.is_asked:
            self._an_end.clear()
            await self._an_end.wait()
        return run_id in self._ended

    def _show_result(self, call_id: str, metadata: Mapping[str, Any]) -> None:
        mark = "✗" if metadata.get("isError") else "✓"
        milliseconds = metadata.get("durationMs", 0)
        self._line(f"{mark} {self._tools.pop(call_id, '')} ({milliseconds} ms)")

    def _show_end(self, outcome: str | None) -> None:
        if outcome == "cancelled":
            self.say("stopped")
        self._end_line()

    def _end_run(self, run_id: str | None) -> None:
        ended = run_id or self.run_id
        if ended is not None:
            self._ended.add(ended)
        self.run_id = None
        self._an_end.set()

    def _write(self, text: str) -> None:
        self._out.write(text)
        self._out.flush()
        self._is_mid_line = not text.endswith("\n") if text else self._is_mid_line

    def _end_line(self) -> None:
        if self._is_mid_line:
            self._write("\n")

    def _line(self, text: str) -> None:
        self._end_line()
        self._write(text + "\n")


class Client:
    """Requests and their answers over one socket; events go to the screen as they come."""

    def __init__(self, socket: ClientConnection, screen: Screen) -> None:
        self._socket = socket
        self._screen = screen
        self._answers: dict[str, asyncio.Future[dict[str, Any]]] = {}
        self._cursor: int | str = "head"
        self.is_lost = asyncio.Event()

    async def read(self) -> None:
        """Take frames until the socket ends."""
        try:
            async for message in self._socket:
                self._take(msgspec.json.decode(message, type=Frame))
        except ConnectionClosed:
            pass
        finally:
            self.is_lost.set()
            for answer in self._answers.values():
                if not answer.done():
                    answer.set_exception(ChatError("closed"))

    async def ask(self, method: str, **params: object) -> dict[str, Any]:
        """The result of a request.

        Raises:
            ChatError: The server refused, is gone, or does not answer.
        """
        request_id = new_id()
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._answers[request_id] = answer
        request = {"type": "req", "id": request_id, "method": method, "params": params}
        try:
            await self._socket.send(msgspec.json.encode(request).decode())
            async with asyncio.timeout(ANSWER_SECONDS):
                return await answer
        except ConnectionClosed:
            raise ChatError("closed") from None
        except TimeoutError:
            raise ChatError(f"no answer to {method}") from None
        finally:
            del self._answers[request_id]

    async def follow(self, session_id: str) -> dict[str, Any]:
        """What the session looks like now; its events are shown from here on, each once.

        Raises:
            ChatError: As `ask`.
        """
        seen = await self.ask("session.subscribe", session=session_id, after=self._cursor)
        if self._cursor == "head":
            self._cursor = seen["replayFrom"] - 1
        return seen

    def _take(self, frame: Frame) -> None:
        if frame.type == "event":
            self._cursor = frame.seq
            self._screen.show(frame.event)
            return
        answer = self._answers.get(frame.id or "")
        if frame.type != "res" or answer is None or answer.done():
            return
        if frame.ok:
            answer.set_result(frame.result)
        else:
            message = str(frame.error.get("message") or frame.error.get("code"))
            answer.set_exception(ChatError(message))


@asynccontextmanager
async def open_client(url: str, token: str, screen: Screen) -> AsyncIterator[Client]:
    """A client that said hello to the server at *url* (`http://…`)."""
    address = url.replace("http", "ws", 1) + "/ws"
    headers = {"Authorization": f"Bearer {token}"}
    connection = connect(
        address,
        subprotocols=[SUBPROTOCOL],  # type: ignore[list-item] # a NewType of str
        additional_headers=headers,
        max_size=None,
        proxy=None,
    )
    async with connection as socket:
        client = Client(socket, screen)
        reader = asyncio.create_task(client.read(), name="read frames")
        try:
            await client.ask(
                "hello",
                minProtocol=PROTOCOL,
                maxProtocol=PROTOCOL,
                client={"id": "headway-chat", "version": "1", "platform": sys.platform},
            )
            yield client
        finally:
            reader.cancel()
            await asyncio.wait({reader})


class Lines:
    """Lines that a person types, read in a thread that nobody has to wait for."""

    def __init__(self, source: TextIO) -> None:
        self._loop = asyncio.get_running_loop()
        # A person types slower than lines are taken; a pipe is held up by its own thread.
        self._lines: asyncio.Queue[str] = asyncio.Queue(maxsize=1)
        self._source = source
        threading.Thread(target=self._read, name="read lines", daemon=True).start()

    async def next(self) -> str | None:
        """The next line, None at the end."""
        return await self._lines.get() or None

    def _read(self) -> None:
        while True:
            line = self._source.readline()
            try:
                put = asyncio.run_coroutine_threadsafe(self._lines.put(line), self._loop)
                put.result()
            except (RuntimeError, asyncio.CancelledError):  # the loop is gone
                return
            if not line:
                return


async def chat(
    url: str, token: str, session_id: str | None, locale: Locale, source: TextIO, out: TextIO
) -> bool:
    """Talk to the server at *url* until the lines of *source* end; False if it went away."""
    screen = Screen(out, locale)
    try:
        async with open_client(url, token, screen) as client:
            return await _converse(client, screen, session_id, Lines(source))
    except (OSError, InvalidHandshake):
        screen.say("unreachable", url)
    except ChatError as error:
        out.write(f"✗ {error}\n")
    return False


async def _converse(client: Client, screen: Screen, session_id: str | None, lines: Lines) -> bool:
    if session_id is None:
        session_id = str((await client.ask("session.create"))["id"])
    screen.say("ready", session_id)
    with _interrupts() as interrupted:
        talk = asyncio.create_task(_talk(client, screen, session_id, lines), name="talk")
        others = {
            asyncio.create_task(_heed(interrupted, client, screen, session_id), name="heed"),
            asyncio.create_task(client.is_lost.wait(), name="lost"),
        }
        await asyncio.wait({talk, *others}, return_when=asyncio.FIRST_COMPLETED)
        for task in (talk, *others):
            task.cancel()
        await asyncio.wait({talk, *others})
    if client.is_lost.is_set():
        screen.say("lost")
        return False
    if not talk.cancelled():
        talk.result()
    return True


async def _talk(client: Client, screen: Screen, session_id: str, lines: Lines) -> None:
    """Send each line and wait for the end of its run; returns at the end of the lines."""
    while await _answer_questions(client, screen, session_id, lines):
        line = await lines.next()
        if line is None:
            return
        if not line.strip():
            continue
        started = await client.ask(
            "run.start", session=session_id, clientMsgId=new_id(), content=line.rstrip("\n")
        )
        queued = started.get("queued")
        if queued is not None:
            screen.say("queued", queued["position"])
        run_id = started.get("runId") or (queued or started["steered"])["itemId"]
        while not await screen.ended(run_id):
            if not await _answer_questions(client, screen, session_id, lines):
                return


async def _answer_questions(client: Client, screen: Screen, session_id: str, lines: Lines) -> bool:
    """Put what the session waits for to the person, until it waits no more; False at the end."""
    while True:
        seen = await client.follow(session_id)
        waiting = [asked for asked in seen["approvals"] if asked["status"] == "OPEN"]
        screen.is_asked = bool(waiting)
        if not waiting:
            return True
        asked = waiting[0]
        is_question = asked["reason"] == "input_required"
        if is_question:
            options = "".join(f"\n- {option}" for option in asked.get("options", []))
            screen.say("question", asked["message"], options)
        else:
            screen.say("may_run", asked["toolName"], asked.get("arguments", ""))
        said = await lines.next()
        if said is None:
            return False
        if not said.strip():
            continue
        answer = _payload(said.strip()) if is_question else _decision(said.strip())
        try:
            given = await client.ask(
                "approval.respond", session=session_id, interruptId=asked["id"], **answer
            )
        except ChatError as error:  # somebody else was faster, or it was too late
            screen.say("refused", error)
            continue
        if "runId" in given:
            screen.is_asked = False
            await screen.ended(given["runId"])


def _payload(said: str) -> dict[str, object]:
    return {"decision": "approve", "payload": said}


def _decision(said: str) -> dict[str, object]:
    if said.lower() in ("y", "yes", "是", "同意"):
        return {"decision": "approve"}
    note = "" if said.lower() in ("n", "no", "否", "拒绝") else said
    return {"decision": "deny", "note": note}


async def _heed(
    interrupted: asyncio.Event, client: Client, screen: Screen, session_id: str
) -> None:
    """Each Ctrl-C stops the run under way; returns at one that finds none."""
    while True:
        await interrupted.wait()
        interrupted.clear()
        if screen.run_id is None:
            return
        with contextlib.suppress(ChatError):
            await client.ask("run.cancel", session=session_id, runId=screen.run_id)


@contextlib.contextmanager
def _interrupts() -> Iterator[asyncio.Event]:
    """Set at each Ctrl-C, which ends nothing by itself meanwhile."""
    interrupted = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, interrupted.set)
    try:
        yield interrupted
    finally:
        loop.remove_signal_handler(signal.SIGINT)
