"""What waits to be sent on one socket, and which logs it follows.

One task sends. It holds a position in each log and reads on from there when the log wakes it, so
a slow peer needs no queue: the longer it takes, the more of a text comes in one frame. Everything
else is either the answer to a request, of which there are only so many, or state, of which only
the last is kept.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from starlette.websockets import WebSocket, WebSocketDisconnect

from server.auth import User
from server.errors import Locale, text_in
from server.eventring import EventRing
from server.state import State
from server.ws import wire
from server.ws.deadline import Deadline, open_deadline
from server.ws.faults import LOGIN_OVER_TEXT, RESTART_TEXT
from server.ws.policy import Policy

_ROOM_FRAMES = 256
"""Answers that may wait before no more requests are read."""
_BATCH_BYTES = 128 * 1024
"""Sent in one go, under one deadline."""
_GOING_AWAY = (1012, "server restart")
NOT_AUTHENTICATED = (4401, "not authenticated")
_RETRY_AFTER_MS = 2000


class Subscription:
    """A position in the log of one session."""

    __slots__ = ("_connection", "cursor", "head", "ring", "session_id", "through")

    def __init__(
        self,
        connection: "Connection",
        session_id: str,
        ring: EventRing,
        cursor: int,
        through: str | None,
    ) -> None:
        self.session_id = session_id
        self.through = through
        """The session with which it came; None if it was asked for itself."""
        self.ring = ring
        self.cursor = cursor
        self.head = wire.event_head(session_id)
        self._connection = connection

    def wake(self) -> None:
        """There is more to read."""
        self._connection.ready(self)

    def take(self, limit_bytes: int) -> list[str]:
        """The frames past the position, which moves on."""
        frames = []
        for event in self.ring.read(self.cursor, limit_bytes):
            frames.append(wire.event_text(self.head, event.first, event.seq, event.body))
            self.cursor = event.seq
        return frames


class Connection:
    """One open socket of a user that is known."""

    __slots__ = (
        "_answers",
        "_beat_timer",
        "_close",
        "_families",
        "_held",
        "_listed",
        "_listed_rev",
        "_patches",
        "_policy",
        "_ready",
        "_room",
        "_sent_at",
        "_signal",
        "_websocket",
        "locale",
        "subscriptions",
        "user",
    )

    def __init__(
        self, websocket: WebSocket[State], user: User, locale: Locale, policy: Policy
    ) -> None:
        self.user = user
        self.locale: Locale = locale
        self.subscriptions: dict[str, Subscription] = {}
        self._websocket = websocket
        self._policy = policy
        self._answers: deque[str] = deque()
        self._patches: dict[str, tuple[int, dict[str, object]]] = {}
        self._held: set[str] = set()
        self._families: dict[str, Callable[[Mapping[str, object]], None]] = {}
        self._listed: dict[str, None] = {}
        self._listed_rev = 0
        self._ready: dict[Subscription, None] = {}
        self._close: tuple[int, str] | None = None
        self._signal = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._sent_at = time.monotonic()
        self._beat_timer: asyncio.TimerHandle | None = None

    # The board's side

    def may_see(self, owner: str) -> bool:
        """Whether sessions of *owner* may be shown."""
        return self.user.may_see(owner)

    def patched(self, session_id: str, rev: int, changes: Mapping[str, object]) -> None:
        """Say what is different in a session; what was not sent yet is joined to it."""
        _, pending = self._patches.get(session_id, (0, {}))
        self._patches[session_id] = (rev, {**pending, **changes})
        if session_id in self._families:
            self._families[session_id](changes)
        self._signal.set()

    def listed(self, rev: int, session_ids: Sequence[str]) -> None:
        """Say that the list is out of date."""
        self._listed_rev = rev
        self._listed.update(dict.fromkeys(session_ids))
        self._signal.set()

    def going_away(self) -> None:
        """Say that the server restarts, and close."""
        text = text_in(RESTART_TEXT, self.locale)
        self.send(wire.Notice("server_restart", text, _RETRY_AFTER_MS))
        self.close(*_GOING_AWAY)

    def login_over(self) -> None:
        """Say that the login has ended, and close; runs go on without this client."""
        text = text_in(LOGIN_OVER_TEXT, self.locale)
        self.send(wire.Notice("auth_expired", text, 0))
        self.close(*NOT_AUTHENTICATED)

    # The requests' side

    def send(self, frame: wire.Result | wire.Failure | wire.ServerFrame) -> None:
        """Send *frame* before anything that comes from a log later."""
        self._answers.append(wire.encode(frame))
        if len(self._answers) >= _ROOM_FRAMES:
            self._room.clear()
        self._signal.set()

    async def room(self) -> None:
        """Wait until a client that sends more than it takes has caught up."""
        await self._room.wait()

    def close(self, code: int, reason: str) -> None:
        """Close after what waits was sent."""
        self._close = self._close or (code, reason)
        self._signal.set()

    @property
    def is_closing(self) -> bool:
        """Whether the server ends it."""
        return self._close is not None

    def hold(self, session_id: str) -> None:
        """Keep back a session's changes until `release`: its state is being read."""
        self._held.add(session_id)

    def release(self, session_id: str) -> None:
        """Send the changes that were kept back, and later ones."""
        self._held.discard(session_id)
        self._signal.set()

    def follow(
        self, session_id: str, ring: EventRing, cursor: int, through: str | None = None
    ) -> None:
        """Send what is in *ring* past *cursor*, and all that comes.

        Args:
            through: The session with which this one is followed, if it was not asked for itself.
        """
        subscription = Subscription(self, session_id, ring, cursor, through)
        self.subscriptions[session_id] = subscription
        ring.listen(subscription)
        if ring.head > cursor:
            subscription.wake()

    def with_family(self, session_id: str, changed: Callable[[Mapping[str, object]], None]) -> None:
        """Tell *changed* of the session's changes too, those that are kept back included."""
        self._families[session_id] = changed
        if session_id in self._patches:
            changed(self._patches[session_id][1])

    def followed_through(self, session_id: str) -> list[str]:
        """The sessions that are followed because this one is."""
        return [s.session_id for s in self.subscriptions.values() if s.through == session_id]

    def unfollow(self, session_id: str) -> None:
        """Send no more of the session."""
        subscription = self.subscriptions.pop(session_id, None)
        if subscription is not None:
            subscription.ring.unlisten(subscription)
            self._ready.pop(subscription, None)
        self._families.pop(session_id, None)
        self._patches.pop(session_id, None)
        self._held.discard(session_id)

    def ready(self, subscription: Subscription) -> None:
        """Read on in this log."""
        self._ready[subscription] = None
        self._signal.set()

    # The sender

    async def run_sender(self) -> None:
        """Send until the connection is closed from here, or the peer is gone.

        Raises:
            TimeoutError: The peer takes nothing.
        """
        self._beat()
        try:
            with suppress(WebSocketDisconnect):
                async with open_deadline(self._policy.send_seconds) as deadline:
                    await self._send_until_closed(deadline)
        finally:
            self._room.set()  # nothing will make room any more; the reader sees the end itself
            if self._beat_timer is not None:
                self._beat_timer.cancel()

    async def _send_until_closed(self, deadline: Deadline) -> None:
        while True:
            await self._signal.wait()
            self._signal.clear()
            deadline.begin()
            for text in self._take():
                await self._websocket.send_text(text)
            self._sent_at = time.monotonic()
            if self._close is not None and not self._answers:
                await self._websocket.close(*self._close)
                return
            deadline.done()

    def _take(self) -> list[str]:
        """What is next: answers, then events, then the state that goes with them."""
        batch = list(self._answers)
        self._answers.clear()
        self._room.set()
        taken = 0
        while self._ready and taken < _BATCH_BYTES:
            subscription = next(iter(self._ready))
            del self._ready[subscription]
            frames = subscription.take(_BATCH_BYTES - taken)
            taken += sum(map(len, frames))
            batch += frames
            if subscription.cursor < subscription.ring.head:
                self._ready[subscription] = None
        if self._ready:
            self._signal.set()
        if self._patches or self._listed:
            batch += self._take_state()
        return batch

    def _take_state(self) -> list[str]:
        """Changes, but none that overtakes the events of its session: the end is told first."""
        behind = {subscription.session_id for subscription in self._ready} | self._held
        frames: list[str] = []
        for session_id in [key for key in self._patches if key not in behind]:
            rev, changes = self._patches.pop(session_id)
            frames.append(wire.encode(wire.SessionUpdate(session_id, rev, changes)))
        if self._listed:
            ids = list(self._listed)
            self._listed.clear()
            frames.append(wire.encode(wire.SessionsChanged(self._listed_rev, ids)))
        return frames

    def _beat(self) -> None:
        """Ping a peer that heard nothing for a while, and look again later."""
        seconds = self._policy.ping_seconds
        if time.monotonic() - self._sent_at >= seconds / 2 and not self._answers:
            self.send(wire.Ping(time.time_ns() // 1_000_000))
        self._beat_timer = asyncio.get_running_loop().call_later(seconds, self._beat)
