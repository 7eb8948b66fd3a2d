"""A run remembers the card that shows it in a chat."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision: str | None = "0001"


def upgrade() -> None:
    """Runs of before have no card."""
    with op.batch_alter_table("run") as table:
        table.add_column(sa.Column("card_handle", sa.Text(), nullable=True))


def downgrade() -> None:
    """Cards that are still open then stay so."""
    with op.batch_alter_table("run") as table:
        table.drop_column("card_handle")
