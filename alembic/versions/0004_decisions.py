"""Decisions get wider, other policies' too; sessions and tasks may carry a progress contract."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision: str | None = "0003"

_WIDER: tuple[tuple[str, sa.types.TypeEngine[object], str], ...] = (
    ("tool_status", sa.String(), ""),
    ("streaks_json", sa.Text(), "{}"),
    ("state_version", sa.Integer(), "0"),
    ("state_diff_json", sa.Text(), "{}"),
    ("budgets_left_json", sa.Text(), "{}"),
    ("findings_json", sa.Text(), "[]"),
    ("threshold_source", sa.String(), ""),
    ("trace_id", sa.String(), ""),
    ("stop_reason", sa.String(), ""),
)


def upgrade() -> None:
    """Decisions of before know of the default rule alone, and of no contract."""
    with op.batch_alter_table("decision") as table:
        for name, kind, default in _WIDER:
            table.add_column(sa.Column(name, kind, nullable=False, server_default=default))
        table.add_column(sa.Column("contract_id", sa.String(), nullable=True))
        table.add_column(sa.Column("contract_version", sa.Integer(), nullable=True))
    op.create_table(
        "shadow_decision",
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("round", sa.Integer(), nullable=False),
        sa.Column("policy", sa.String(), nullable=False),
        sa.Column("verdict", sa.String(), nullable=False),
        sa.Column("rule", sa.String(), nullable=False),
        sa.Column("streak", sa.Integer(), nullable=False),
        sa.Column("stop_reason", sa.String(), nullable=False),
        sa.Column("findings_json", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("run_id", "round", "policy", name="pk_shadow_decision"),
        sa.ForeignKeyConstraint(
            ["run_id"], ["run.id"], name="fk_shadow_decision_run_id_run", ondelete="CASCADE"
        ),
    )
    op.create_table(
        "exploration",
        sa.Column("root_run_id", sa.String(), nullable=False),
        sa.Column("action_digest", sa.String(), nullable=False),
        sa.Column("result_digest", sa.String(), nullable=False),
        sa.Column("session_id", sa.String(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint(
            "root_run_id", "action_digest", "result_digest", name="pk_exploration"
        ),
        sa.ForeignKeyConstraint(
            ["root_run_id"], ["run.id"], name="fk_exploration_root_run_id_run", ondelete="CASCADE"
        ),
    )
    for name in ("session", "scheduled_task"):
        with op.batch_alter_table(name) as table:
            table.add_column(sa.Column("contract_json", sa.Text(), nullable=True))


def downgrade() -> None:
    """What only the newer release knows is lost."""
    for name in ("scheduled_task", "session"):
        with op.batch_alter_table(name) as table:
            table.drop_column("contract_json")
    op.drop_table("exploration")
    op.drop_table("shadow_decision")
    with op.batch_alter_table("decision") as table:
        for name in ("contract_version", "contract_id", *(name for name, *_ in reversed(_WIDER))):
            table.drop_column(name)
