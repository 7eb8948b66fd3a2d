"""Side questions, subagents, scheduled tasks, approvals and actions get what they keep."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision: str | None = "0002"


def upgrade() -> None:
    """Sessions of before have no fixed tools; they get them with their next run."""
    op.create_table(
        "toolset",
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("definitions_json", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("digest", name="pk_toolset"),
    )
    with op.batch_alter_table("session") as table:
        table.add_column(
            sa.Column("inherited_seq", sa.Integer(), nullable=False, server_default="0")
        )
        table.add_column(sa.Column("toolset", sa.String(), nullable=True))
        table.create_foreign_key("fk_session_toolset_toolset", "toolset", ["toolset"], ["digest"])
    op.create_table(
        "action",
        sa.Column("session_id", sa.String(), nullable=False),
        sa.Column("call_id", sa.String(), nullable=False),
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("tool_name", sa.String(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("mark", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("session_id", "call_id", name="pk_action"),
        sa.ForeignKeyConstraint(
            ["session_id"], ["session.id"], name="fk_action_session_id_session", ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["run_id"], ["run.id"], name="fk_action_run_id_run", ondelete="CASCADE"
        ),
    )
    op.create_index("ix_action_run_id", "action", ["run_id"])
    with op.batch_alter_table("chat_binding") as table:
        table.add_column(sa.Column("reach", sa.Text(), nullable=True))
    with op.batch_alter_table("subagent_execution") as table:
        table.add_column(
            sa.Column("background", sa.Boolean(), nullable=False, server_default=sa.false())
        )
        table.create_unique_constraint("uq_subagent_execution_run_id", ["run_id", "tool_call_id"])
    with op.batch_alter_table("scheduled_task") as table:
        table.add_column(sa.Column("missed_within_seconds", sa.Integer(), nullable=True))
        table.add_column(
            sa.Column("is_quiet", sa.Boolean(), nullable=False, server_default=sa.false())
        )
        table.add_column(sa.Column("origin_key", sa.String(), nullable=True))
        table.alter_column("paused_reason", type_=sa.Text())
        table.create_unique_constraint("uq_scheduled_task_origin_key", ["origin_key"])
    with op.batch_alter_table("scheduled_task_run") as table:
        table.add_column(sa.Column("trigger", sa.String(), nullable=False, server_default="due"))
        table.add_column(sa.Column("reason", sa.Text(), nullable=True))
        table.add_column(sa.Column("delivery_run_id", sa.String(), nullable=True))
        table.add_column(sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True))
    for name in ("run_id", "delivery_run_id"):
        op.create_index(f"ix_scheduled_task_run_{name}", "scheduled_task_run", [name])


def downgrade() -> None:
    """What only the newer release knows is lost."""
    for name in ("run_id", "delivery_run_id"):
        op.drop_index(f"ix_scheduled_task_run_{name}", "scheduled_task_run")
    with op.batch_alter_table("scheduled_task_run") as table:
        for name in ("ended_at", "delivery_run_id", "reason", "trigger"):
            table.drop_column(name)
    with op.batch_alter_table("scheduled_task") as table:
        table.drop_constraint("uq_scheduled_task_origin_key", type_="unique")
        table.alter_column("paused_reason", type_=sa.String())
        for name in ("origin_key", "is_quiet", "missed_within_seconds"):
            table.drop_column(name)
    with op.batch_alter_table("subagent_execution") as table:
        table.drop_constraint("uq_subagent_execution_run_id", type_="unique")
        table.drop_column("background")
    with op.batch_alter_table("chat_binding") as table:
        table.drop_column("reach")
    op.drop_index("ix_action_run_id", "action")
    op.drop_table("action")
    with op.batch_alter_table("session") as table:
        table.drop_constraint("fk_session_toolset_toolset", type_="foreignkey")
        table.drop_column("toolset")
        table.drop_column("inherited_seq")
    op.drop_table("toolset")
