"""What handlers read from `request.state` and `websocket.state`: the opened application."""

import asyncio
from typing import TypedDict

from server.approvals import Approvals
from server.auth import OriginPolicy, Users
from server.board import Board
from server.bots import Bots
from server.chats import ChatInbox
from server.eventlog import EventLogs
from server.inbox import SessionInbox
from server.llm.port import Model
from server.metrics import Metrics
from server.probe import ModelProbe, StoreProbe
from server.schedule import Scheduler
from server.settings import Settings
from server.signals import RunSignals
from server.store.blobs import Blobs
from server.store.engine import Store
from server.tools.mcp import McpServers


class State(TypedDict):
    """Everything is open while a handler runs, and closed after the last one ended."""

    settings: Settings
    store: Store
    blobs: Blobs
    inbox: SessionInbox
    approvals: Approvals
    signals: RunSignals
    scheduler: Scheduler
    chats: ChatInbox
    bots: Bots
    mcp: McpServers
    logs: EventLogs
    board: Board
    users: Users
    origins: OriginPolicy
    model: Model
    probe: ModelProbe
    store_probe: StoreProbe
    metrics: Metrics
    started_at: float
    """`time.monotonic` when the application opened."""
    closing: asyncio.Event
    """Set when the server begins to end."""
