"""What the application stands on: the store, the files, and what a process keeps in memory."""

from contextlib import AsyncExitStack
from dataclasses import dataclass, field

from server.board import Board
from server.bots import Bots
from server.eventlog import EventLogs
from server.metrics import Metrics
from server.settings import Settings
from server.signals import RunSignals
from server.store.blobs import Blobs
from server.store.engine import Store, open_store
from server.store.lock import hold_lock


@dataclass(frozen=True, slots=True)
class Ground:
    """What every other part gets its share of."""

    settings: Settings
    store: Store
    blobs: Blobs
    metrics: Metrics = field(default_factory=Metrics)
    board: Board = field(default_factory=Board)
    logs: EventLogs = field(default_factory=EventLogs)
    signals: RunSignals = field(default_factory=RunSignals)
    bots: Bots = field(default_factory=Bots)
    """Empty until they are opened, which is last: they have to be able to bring messages."""

    @property
    def is_alone(self) -> bool:
        """No other process works on this database."""
        return self.store.dialect == "sqlite"


async def open_ground(opened: AsyncExitStack, settings: Settings) -> Ground:
    """Open the store, and on SQLite take the lock that keeps other processes away from it."""
    store = await opened.enter_async_context(open_store(settings.database_url.get_secret_value()))
    ground = Ground(settings, store, Blobs(settings.data_dir / "files"))
    settings.data_dir.mkdir(parents=True, exist_ok=True)
    if ground.is_alone:
        opened.enter_context(hold_lock(settings.data_dir))
    settings.workspace.mkdir(parents=True, exist_ok=True)
    ground.metrics.watch_event_log(ground.logs.kept)
    return ground
