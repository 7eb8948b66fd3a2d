"""The first tables."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision: str | None = None


def upgrade() -> None:
    """Make the tables, each after those it refers to."""
    _create_scheduled_task()
    _create_session()
    _create_chat_binding()
    _create_file()
    _create_inbound_event()
    _create_llm_call()
    _create_outbox()
    _create_run()
    _create_scheduled_task_run()
    _create_approval()
    _create_decision()
    _create_message()
    _create_subagent_execution()


def downgrade() -> None:
    """Drop the tables, each before those it refers to."""
    for table in reversed(_TABLES):
        op.drop_table(table)


_TABLES = (
    "scheduled_task",
    "session",
    "chat_binding",
    "file",
    "inbound_event",
    "llm_call",
    "outbox",
    "run",
    "scheduled_task_run",
    "approval",
    "decision",
    "message",
    "subagent_execution",
)


def _create_scheduled_task() -> None:
    op.create_table(
        "scheduled_task",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("owner", sa.String(), nullable=False),
        sa.Column("title", sa.String(), nullable=False),
        sa.Column("prompt", sa.Text(), nullable=False),
        sa.Column("schedule_json", sa.Text(), nullable=False),
        sa.Column("timezone", sa.String(), nullable=False),
        sa.Column("missed_policy", sa.String(), nullable=False),
        sa.Column("delivery_json", sa.Text(), nullable=False),
        sa.Column("failure_limit", sa.Integer(), nullable=False),
        sa.Column("failures_in_row", sa.Integer(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("paused_reason", sa.String(), nullable=True),
        sa.Column("next_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_scheduled_task"),
    )
    op.create_index("ix_scheduled_task_next_at", "scheduled_task", ["next_at"])
    op.create_index("ix_scheduled_task_owner", "scheduled_task", ["owner"])


def _create_session() -> None:
    op.create_table(
        "session",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("title", sa.String(), nullable=True),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("parent_session_id", sa.String(), nullable=True),
        sa.Column("owner", sa.String(), nullable=False),
        sa.Column("origin", sa.String(), nullable=False),
        sa.Column("model", sa.String(), nullable=True),
        sa.Column("locale", sa.String(), nullable=False),
        sa.Column("timezone", sa.String(), nullable=False),
        sa.Column("external_id", sa.String(), nullable=True),
        sa.Column("queue_paused", sa.Boolean(), nullable=False),
        sa.Column("runtime_status_json", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_session"),
        sa.ForeignKeyConstraint(
            ["parent_session_id"],
            ["session.id"],
            name="fk_session_parent_session_id_session",
            ondelete="CASCADE",
        ),
        sa.UniqueConstraint("owner", "external_id", name="uq_session_owner"),
    )
    op.create_index("ix_session_owner_updated", "session", ["owner", "updated_at"])
    op.create_index("ix_session_parent_session_id", "session", ["parent_session_id"])
    op.create_index("ix_session_updated_at", "session", ["updated_at"])


def _create_chat_binding() -> None:
    op.create_table(
        "chat_binding",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("platform", sa.String(), nullable=False),
        sa.Column("app_id", sa.String(), nullable=False),
        sa.Column("chat_id", sa.String(), nullable=False),
        sa.Column("thread_id", sa.String(), nullable=False),
        sa.Column("session_id", sa.String(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_chat_binding"),
        sa.ForeignKeyConstraint(
            ["session_id"],
            ["session.id"],
            name="fk_chat_binding_session_id_session",
            ondelete="CASCADE",
        ),
        sa.UniqueConstraint(
            "platform", "app_id", "chat_id", "thread_id", name="uq_chat_binding_platform"
        ),
    )
    op.create_index("ix_chat_binding_session_id", "chat_binding", ["session_id"])


def _create_file() -> None:
    op.create_table(
        "file",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("session_id", sa.String(), nullable=True),
        sa.Column("owner", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("media_type", sa.String(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("sha256", sa.String(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_file"),
        sa.ForeignKeyConstraint(
            ["session_id"], ["session.id"], name="fk_file_session_id_session", ondelete="CASCADE"
        ),
    )
    op.create_index("ix_file_session_id", "file", ["session_id"])


def _create_inbound_event() -> None:
    op.create_table(
        "inbound_event",
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("session_id", sa.String(), nullable=False),
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("key", name="pk_inbound_event"),
        sa.ForeignKeyConstraint(
            ["session_id"],
            ["session.id"],
            name="fk_inbound_event_session_id_session",
            ondelete="CASCADE",
        ),
    )
    op.create_index("ix_inbound_event_created_at", "inbound_event", ["created_at"])
    op.create_index("ix_inbound_event_run_id", "inbound_event", ["run_id"])
    op.create_index("ix_inbound_event_session_id", "inbound_event", ["session_id"])


def _create_llm_call() -> None:
    op.create_table(
        "llm_call",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("session_id", sa.String(), nullable=False),
        sa.Column("run_id", sa.String(), nullable=True),
        sa.Column("purpose", sa.String(), nullable=False),
        sa.Column("model", sa.String(), nullable=False),
        sa.Column("prompt_tokens", sa.Integer(), nullable=False),
        sa.Column("cached_tokens", sa.Integer(), nullable=False),
        sa.Column("completion_tokens", sa.Integer(), nullable=False),
        sa.Column("first_token_ms", sa.Integer(), nullable=True),
        sa.Column("total_ms", sa.Integer(), nullable=False),
        sa.Column("error", sa.String(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_llm_call"),
        sa.ForeignKeyConstraint(
            ["session_id"],
            ["session.id"],
            name="fk_llm_call_session_id_session",
            ondelete="CASCADE",
        ),
    )
    op.create_index("ix_llm_call_run_id", "llm_call", ["run_id"])
    op.create_index("ix_llm_call_session_id", "llm_call", ["session_id"])


def _create_outbox() -> None:
    op.create_table(
        "outbox",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("session_id", sa.String(), nullable=False),
        sa.Column("run_id", sa.String(), nullable=True),
        sa.Column("surface", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("payload_json", sa.Text(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("error", sa.String(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("due_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("delivered_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_outbox"),
        sa.ForeignKeyConstraint(
            ["session_id"], ["session.id"], name="fk_outbox_session_id_session", ondelete="CASCADE"
        ),
    )
    op.create_index("ix_outbox_due", "outbox", ["status", "due_at"])
    op.create_index("ix_outbox_run_id", "outbox", ["run_id"])
    op.create_index("ix_outbox_session_id", "outbox", ["session_id"])


def _create_run() -> None:
    op.create_table(
        "run",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("session_id", sa.String(), nullable=False),
        sa.Column("trigger", sa.String(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("input_json", sa.Text(), nullable=True),
        sa.Column("queue_seq", sa.Integer(), nullable=False),
        sa.Column("steer", sa.Boolean(), nullable=False),
        sa.Column("joined_run_id", sa.String(), nullable=True),
        sa.Column("message_id", sa.String(), nullable=True),
        sa.Column("outcome_code", sa.String(), nullable=True),
        sa.Column("outcome_text", sa.Text(), nullable=True),
        sa.Column("rounds", sa.Integer(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("cancel_requested", sa.Boolean(), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("lease_owner", sa.String(), nullable=True),
        sa.Column("lease_until", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_run"),
        sa.ForeignKeyConstraint(
            ["session_id"], ["session.id"], name="fk_run_session_id_session", ondelete="CASCADE"
        ),
    )
    op.create_index("ix_run_queue", "run", ["status", "session_id", "queue_seq"])
    op.create_index("ix_run_session_id", "run", ["session_id"])
    op.create_index(
        "uq_run_running_session",
        "run",
        ["session_id"],
        unique=True,
        sqlite_where=sa.text("status = 'RUNNING'"),
        postgresql_where=sa.text("status = 'RUNNING'"),
    )


def _create_scheduled_task_run() -> None:
    op.create_table(
        "scheduled_task_run",
        sa.Column("task_id", sa.String(), nullable=False),
        sa.Column("due_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("session_id", sa.String(), nullable=True),
        sa.Column("run_id", sa.String(), nullable=True),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("delivery_status", sa.String(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("task_id", "due_at", name="pk_scheduled_task_run"),
        sa.ForeignKeyConstraint(
            ["task_id"],
            ["scheduled_task.id"],
            name="fk_scheduled_task_run_task_id_scheduled_task",
            ondelete="CASCADE",
        ),
    )


def _create_approval() -> None:
    op.create_table(
        "approval",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("session_id", sa.String(), nullable=False),
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("tool_call_id", sa.String(), nullable=False),
        sa.Column("reason", sa.String(), nullable=False),
        sa.Column("request_json", sa.Text(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("answer_json", sa.Text(), nullable=True),
        sa.Column("answered_by", sa.String(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("answered_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_approval"),
        sa.ForeignKeyConstraint(
            ["run_id"], ["run.id"], name="fk_approval_run_id_run", ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["session_id"],
            ["session.id"],
            name="fk_approval_session_id_session",
            ondelete="CASCADE",
        ),
    )
    op.create_index("ix_approval_run_id", "approval", ["run_id"])
    op.create_index("ix_approval_session_id", "approval", ["session_id"])


def _create_decision() -> None:
    op.create_table(
        "decision",
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("round", sa.Integer(), nullable=False),
        sa.Column("action_digest", sa.String(), nullable=False),
        sa.Column("result_digest", sa.String(), nullable=False),
        sa.Column("exempt", sa.Boolean(), nullable=False),
        sa.Column("streak", sa.Integer(), nullable=False),
        sa.Column("verdict", sa.String(), nullable=False),
        sa.Column("rule", sa.String(), nullable=False),
        sa.Column("policy", sa.String(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("run_id", "round", name="pk_decision"),
        sa.ForeignKeyConstraint(
            ["run_id"], ["run.id"], name="fk_decision_run_id_run", ondelete="CASCADE"
        ),
    )


def _create_message() -> None:
    op.create_table(
        "message",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("session_id", sa.String(), nullable=False),
        sa.Column("run_id", sa.String(), nullable=True),
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("role", sa.String(), nullable=False),
        sa.Column("content", sa.Text(), nullable=False),
        sa.Column("tool_calls_json", sa.Text(), nullable=True),
        sa.Column("tool_call_id", sa.String(), nullable=True),
        sa.Column("metadata_json", sa.Text(), nullable=False),
        sa.Column("first_kept_seq", sa.Integer(), nullable=True),
        sa.Column("superseded_by_run_id", sa.String(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_message"),
        sa.ForeignKeyConstraint(
            ["run_id"], ["run.id"], name="fk_message_run_id_run", ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["session_id"], ["session.id"], name="fk_message_session_id_session", ondelete="CASCADE"
        ),
        sa.UniqueConstraint("session_id", "seq", name="uq_message_session_id"),
    )
    op.create_index("ix_message_run_id", "message", ["run_id"])
    op.create_index(
        "ix_message_summary",
        "message",
        ["session_id", "seq"],
        sqlite_where=sa.text("first_kept_seq IS NOT NULL"),
        postgresql_where=sa.text("first_kept_seq IS NOT NULL"),
    )
    op.create_index("ix_message_superseded_by_run_id", "message", ["superseded_by_run_id"])
    op.create_index("ix_message_tool_call_id", "message", ["tool_call_id"])


def _create_subagent_execution() -> None:
    op.create_table(
        "subagent_execution",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("tool_call_id", sa.String(), nullable=False),
        sa.Column("child_session_id", sa.String(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("result_text", sa.Text(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_subagent_execution"),
        sa.ForeignKeyConstraint(
            ["child_session_id"],
            ["session.id"],
            name="fk_subagent_execution_child_session_id_session",
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["run_id"], ["run.id"], name="fk_subagent_execution_run_id_run", ondelete="CASCADE"
        ),
    )
    op.create_index(
        "ix_subagent_execution_child_session_id", "subagent_execution", ["child_session_id"]
    )
    op.create_index("ix_subagent_execution_run_id", "subagent_execution", ["run_id"])
