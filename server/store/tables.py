"""The tables. Names are relied on by operators; change them only by a migration."""

from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from sqlmodel import Field, SQLModel

NAMING = {
    "ix": "ix_%(column_0_label)s",
    "uq": "uq_%(table_name)s_%(column_0_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
    "pk": "pk_%(table_name)s",
}
SQLModel.metadata.naming_convention = NAMING


class UtcTime(sa.types.TypeDecorator[datetime]):
    """An aware instant. SQLite drops the offset, so it is made UTC before and given back after."""

    impl = sa.DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: sa.Dialect) -> datetime | None:
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError("a stored time needs its zone")
        return value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: sa.Dialect) -> datetime | None:
        if value is None:
            return None
        if value.tzinfo is None:
            return value.replace(tzinfo=UTC)
        return value.astimezone(UTC)


def table_of(row: type[SQLModel]) -> sa.Table:
    """The table behind *row*, for statements that need no row objects."""
    return SQLModel.metadata.tables[str(row.__tablename__)]


def _utc(*, nullable: bool = False, index: bool = False) -> Any:
    return Field(
        default=None if nullable else ...,
        sa_type=UtcTime,
        nullable=nullable,
        index=index,
    )


def _text(*, nullable: bool = True) -> Any:
    return Field(default=None if nullable else ..., sa_type=sa.Text, nullable=nullable)


class SessionRow(SQLModel, table=True):
    """One chat of a user."""

    __tablename__ = "session"
    __table_args__ = (
        sa.UniqueConstraint("owner", "external_id"),
        sa.Index("ix_session_owner_updated", "owner", "updated_at"),
    )

    id: str = Field(primary_key=True)
    kind: str
    """`main`, `sideline`, `subagent`, `scheduled`, `chat`."""
    title: str | None = None
    status: str = "IDLE"
    parent_session_id: str | None = Field(
        default=None, foreign_key="session.id", index=True, ondelete="CASCADE"
    )
    owner: str
    origin: str
    model: str | None = None
    locale: str
    """Fixed at birth: texts of the guard must stay byte-stable."""
    timezone: str
    """IANA name, fixed at birth: date notes must stay byte-stable."""
    external_id: str | None = None
    """The thread id of an AG-UI client; each owner has his own."""
    queue_paused: bool = False
    inherited_seq: int = 0
    """Messages up to this `seq` are a copy of the parent's: part of the prompt, not of the chat."""
    toolset: str | None = Field(default=None, foreign_key="toolset.digest")
    """The tools as the model first saw them; fixed, so that the prompt stays byte-stable."""
    contract_json: str | None = _text()
    """The progress contract that its runs are judged by."""
    runtime_status_json: str = Field(default="{}", sa_type=sa.Text)
    created_at: datetime = _utc()
    updated_at: datetime = _utc(index=True)


class RunRow(SQLModel, table=True):
    """One execution, queued ones too; `input_json` keeps what a person sent."""

    __tablename__ = "run"
    __table_args__ = (
        sa.Index(
            "uq_run_running_session",
            "session_id",
            unique=True,
            sqlite_where=sa.text("status = 'RUNNING'"),
            postgresql_where=sa.text("status = 'RUNNING'"),
        ),
        sa.Index("ix_run_queue", "status", "session_id", "queue_seq"),
    )

    id: str = Field(primary_key=True)
    session_id: str = Field(foreign_key="session.id", index=True, ondelete="CASCADE")
    trigger: str
    """`message`, `retry`, `edit`, `compact`, `resume`, `deliver`, `schedule`, `subagent`."""
    status: str
    """`QUEUED RUNNING WAITING COMPLETED FAILED CANCELLED`, or `JOINED`: steered into another."""
    input_json: str | None = _text()
    queue_seq: int = 0
    """Order in the queue; the smallest is next."""
    steer: bool = False
    """Wants to join the running run at its next round."""
    joined_run_id: str | None = None
    message_id: str | None = None
    """The user message that began it."""
    card_handle: str | None = _text()
    """What a platform needs to find the card that shows the run."""
    outcome_code: str | None = None
    outcome_text: str | None = _text()
    rounds: int = 0
    attempt: int = 0
    """Rises with each claim; every write of a run names the attempt it belongs to."""
    cancel_requested: bool = False
    started_at: datetime | None = _utc(nullable=True)
    ended_at: datetime | None = _utc(nullable=True)
    created_at: datetime = _utc()
    lease_owner: str | None = None
    lease_until: datetime | None = _utc(nullable=True)


class ToolsetRow(SQLModel, table=True):
    """Definitions of tools as requests carry them."""

    __tablename__ = "toolset"

    digest: str = Field(primary_key=True)
    definitions_json: str = Field(sa_type=sa.Text)
    created_at: datetime = _utc()
    """When a session was last bound to it."""


class ActionRow(SQLModel, table=True):
    """A call that writes or sends: what is known of its effect."""

    __tablename__ = "action"

    session_id: str = Field(primary_key=True, foreign_key="session.id", ondelete="CASCADE")
    call_id: str = Field(primary_key=True)
    run_id: str = Field(foreign_key="run.id", index=True, ondelete="CASCADE")
    tool_name: str
    state: str
    """`STARTED`, `DONE`, `UNKNOWN`."""
    mark: str = Field(default="", sa_type=sa.Text)
    """What the tool noted before it began, to tell later what became of the call."""
    created_at: datetime = _utc()
    ended_at: datetime | None = _utc(nullable=True)


class MessageRow(SQLModel, table=True):
    """One message of a session's history."""

    __tablename__ = "message"
    __table_args__ = (
        sa.UniqueConstraint("session_id", "seq"),
        sa.Index(
            "ix_message_summary",
            "session_id",
            "seq",
            sqlite_where=sa.text("first_kept_seq IS NOT NULL"),
            postgresql_where=sa.text("first_kept_seq IS NOT NULL"),
        ),
    )

    id: str = Field(primary_key=True)
    session_id: str = Field(foreign_key="session.id", ondelete="CASCADE")
    run_id: str | None = Field(default=None, foreign_key="run.id", index=True, ondelete="CASCADE")
    seq: int
    """From 1, gapless per session, in the order of the prompt."""
    role: str
    content: str = Field(sa_type=sa.Text)
    """Plain text; files stand in `metadata_json`."""
    tool_calls_json: str | None = _text()
    tool_call_id: str | None = Field(default=None, index=True)
    metadata_json: str = Field(default="{}", sa_type=sa.Text)
    first_kept_seq: int | None = None
    """Set on a summary only: messages with a smaller `seq` left the prompt."""
    superseded_by_run_id: str | None = None
    created_at: datetime = _utc()


class DecisionRow(SQLModel, table=True):
    """What the run's policy made of one closed round: figures and digests, no texts."""

    __tablename__ = "decision"

    run_id: str = Field(primary_key=True, foreign_key="run.id", ondelete="CASCADE")
    round: int = Field(primary_key=True)
    action_digest: str
    result_digest: str
    exempt: bool
    streak: int
    """Of the default rule."""
    verdict: str
    """`none`, `nudge`, `abort`."""
    rule: str
    """That gave the verdict."""
    policy: str
    """With its version."""
    created_at: datetime = _utc()
    tool_status: str = ""
    """`ok`, `error`, `mixed`."""
    streaks_json: str = Field(default="{}", sa_type=sa.Text)
    """By rule, where it counts rounds."""
    state_version: int = 0
    """Times that the state of the contract moved in this turn."""
    state_diff_json: str = Field(default="{}", sa_type=sa.Text)
    """By field of the contract `[before, after]`; texts by their digest."""
    budgets_left_json: str = Field(default="{}", sa_type=sa.Text)
    findings_json: str = Field(default="[]", sa_type=sa.Text)
    """Every rule that asked for anything, and what its mode made of that."""
    threshold_source: str = ""
    """Where the numbers come from: a policy, a contract, a tool."""
    trace_id: str = ""
    stop_reason: str = ""
    """The code with which the run ends for this round."""
    contract_id: str | None = None
    contract_version: int | None = None


class ShadowDecisionRow(SQLModel, table=True):
    """What a policy that only records would have said of a round."""

    __tablename__ = "shadow_decision"

    run_id: str = Field(primary_key=True, foreign_key="run.id", ondelete="CASCADE")
    round: int = Field(primary_key=True)
    policy: str = Field(primary_key=True)
    verdict: str
    """`nudge`, `abort`."""
    rule: str
    streak: int
    stop_reason: str
    findings_json: str = Field(sa_type=sa.Text)
    created_at: datetime = _utc()


class ExplorationRow(SQLModel, table=True):
    """A call with its result that a subagent made first of all that work for one run."""

    __tablename__ = "exploration"

    root_run_id: str = Field(primary_key=True, foreign_key="run.id", ondelete="CASCADE")
    action_digest: str = Field(primary_key=True)
    result_digest: str = Field(primary_key=True)
    session_id: str
    created_at: datetime = _utc()


class LlmCallRow(SQLModel, table=True):
    """One request to the model, failed ones too."""

    __tablename__ = "llm_call"

    id: str = Field(primary_key=True)
    session_id: str = Field(foreign_key="session.id", index=True, ondelete="CASCADE")
    run_id: str | None = Field(default=None, index=True)
    purpose: str
    model: str
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    first_token_ms: int | None = None
    total_ms: int = 0
    error: str | None = None
    created_at: datetime = _utc()


class InboundEventRow(SQLModel, table=True):
    """An idempotency key of an edge and the run it became."""

    __tablename__ = "inbound_event"

    key: str = Field(primary_key=True)
    session_id: str = Field(foreign_key="session.id", index=True, ondelete="CASCADE")
    run_id: str = Field(index=True)
    state: str
    """What the edge was told: `started`, `queued`, `steered`."""
    position: int | None = None
    created_at: datetime = _utc(index=True)


class OutboxRow(SQLModel, table=True):
    """Something a surface has to be told, written with the fact it tells of."""

    __tablename__ = "outbox"
    __table_args__ = (sa.Index("ix_outbox_due", "status", "due_at"),)

    id: str = Field(primary_key=True)
    session_id: str = Field(foreign_key="session.id", index=True, ondelete="CASCADE")
    run_id: str | None = Field(default=None, index=True)
    surface: str
    kind: str
    """`outcome`: of a run; `late`: messages that came too late to be run."""
    payload_json: str = Field(sa_type=sa.Text)
    status: str = "PENDING"
    """`PENDING`, `DELIVERED`, `UNDELIVERABLE`."""
    attempts: int = 0
    error: str | None = None
    created_at: datetime = _utc()
    due_at: datetime = _utc()
    delivered_at: datetime | None = _utc(nullable=True)


class FileRow(SQLModel, table=True):
    """A file of a session; the bytes stand in the data folder under their hash."""

    __tablename__ = "file"

    id: str = Field(primary_key=True)
    session_id: str | None = Field(
        default=None, foreign_key="session.id", index=True, ondelete="CASCADE"
    )
    owner: str
    name: str
    media_type: str
    size_bytes: int = Field(sa_type=sa.BigInteger)
    sha256: str
    shown_sha256: str | None = None
    """Of what a model is shown of the picture; empty if it cannot be, None until it was tried."""
    created_at: datetime = _utc()


class ChatBindingRow(SQLModel, table=True):
    """Which session a platform's conversation speaks to now."""

    __tablename__ = "chat_binding"
    __table_args__ = (sa.UniqueConstraint("platform", "app_id", "chat_id", "thread_id"),)

    id: str = Field(primary_key=True)
    platform: str
    app_id: str
    chat_id: str
    thread_id: str = ""
    session_id: str = Field(foreign_key="session.id", index=True, ondelete="CASCADE")
    reach: str | None = _text()
    """What the platform needs to write there unasked: the newest message's `reply_to`."""
    created_at: datetime = _utc()
    updated_at: datetime = _utc()


class ApprovalRow(SQLModel, table=True):
    """A question that a waiting run put to a person."""

    __tablename__ = "approval"

    id: str = Field(primary_key=True)
    session_id: str = Field(foreign_key="session.id", index=True, ondelete="CASCADE")
    run_id: str = Field(foreign_key="run.id", index=True, ondelete="CASCADE")
    tool_call_id: str
    reason: str
    """`tool_call`: may this be done; `input_required`: the model asks for something."""
    request_json: str = Field(sa_type=sa.Text)
    status: str = "OPEN"
    """`OPEN`, `APPROVED`, `DENIED`, `ANSWERED`, `CANCELLED`, `EXPIRED`."""
    answer_json: str | None = _text()
    answered_by: str | None = None
    created_at: datetime = _utc()
    answered_at: datetime | None = _utc(nullable=True)
    expires_at: datetime | None = _utc(nullable=True)


class SubagentExecutionRow(SQLModel, table=True):
    """A child session at work for a run."""

    __tablename__ = "subagent_execution"
    __table_args__ = (sa.UniqueConstraint("run_id", "tool_call_id"),)

    id: str = Field(primary_key=True)
    run_id: str = Field(foreign_key="run.id", index=True, ondelete="CASCADE")
    """The run that asked for it."""
    tool_call_id: str
    child_session_id: str = Field(foreign_key="session.id", index=True, ondelete="CASCADE")
    status: str
    """`RUNNING`, `COMPLETED`, `FAILED`, `CANCELLED`."""
    background: bool = False
    result_text: str | None = _text()
    created_at: datetime = _utc()
    ended_at: datetime | None = _utc(nullable=True)


class ScheduledTaskRow(SQLModel, table=True):
    """Something to run at set times."""

    __tablename__ = "scheduled_task"

    id: str = Field(primary_key=True)
    owner: str = Field(index=True)
    title: str
    prompt: str = Field(sa_type=sa.Text)
    schedule_json: str = Field(sa_type=sa.Text)
    timezone: str
    missed_policy: str = "skip"
    """`skip`, `run_once`, `run_if_within`."""
    missed_within_seconds: int | None = None
    """With `run_if_within`: how late it may still run."""
    delivery_json: str = Field(default="{}", sa_type=sa.Text)
    is_quiet: bool = False
    """Having nothing to say is a good end, and is not delivered."""
    origin_key: str | None = Field(default=None, unique=True)
    """Of the call that made it, so that the same call makes it once."""
    failure_limit: int = 3
    failures_in_row: int = 0
    status: str = "ACTIVE"
    """`ACTIVE`, `PAUSED`, `DONE`, `INVALID`."""
    paused_reason: str | None = _text()
    contract_json: str | None = _text()
    """The progress contract that its runs are judged by."""
    next_at: datetime | None = _utc(nullable=True, index=True)
    created_at: datetime = _utc()
    updated_at: datetime = _utc()


class ScheduledTaskRunRow(SQLModel, table=True):
    """One due time of a scheduled task; the key admits each due time once."""

    __tablename__ = "scheduled_task_run"

    task_id: str = Field(primary_key=True, foreign_key="scheduled_task.id", ondelete="CASCADE")
    due_at: datetime = Field(primary_key=True, sa_type=UtcTime)
    trigger: str = "due"
    """`due`, `manual`."""
    session_id: str | None = None
    run_id: str | None = Field(default=None, index=True)
    status: str
    """`RUNNING`, `WAITING`, `COMPLETED`, `FAILED`, `CANCELLED`, `SKIPPED`."""
    reason: str | None = _text()
    """Why it failed or was skipped."""
    delivery_run_id: str | None = Field(default=None, index=True)
    """The run that tells it in the session where it is delivered."""
    delivery_status: str | None = None
    """`PENDING`, `DELIVERED`, `UNDELIVERABLE`; None where nothing is to be delivered."""
    created_at: datetime = _utc()
    ended_at: datetime | None = _utc(nullable=True)
