"""Files know what is shown of them to a model; an index that no query used is gone."""

import re

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision: str | None = "0004"


_FILE_ID = re.compile("[0-9a-z]{26}")


def upgrade() -> None:
    """Pictures of before are made ready when they are shown next."""
    op.add_column("file", sa.Column("shown_sha256", sa.String(), nullable=True))
    op.drop_index("ix_message_superseded_by_run_id", table_name="message")
    _bind_files(op.get_bind())


def _bind_files(db: sa.Connection) -> None:
    """Give files without a session that of the first message with them; others are forgotten."""
    free = set(db.scalars(sa.text("SELECT id FROM file WHERE session_id IS NULL")))
    if not free:
        return
    named = db.execute(
        sa.text(
            "SELECT session_id, metadata_json FROM message WHERE metadata_json LIKE '%fileId%' "
            "UNION ALL SELECT session_id, input_json FROM run WHERE status = 'QUEUED'"
        )
    ).all()
    for session_id, text in named:
        for file_id in free.intersection(_FILE_ID.findall(text or "")):
            bind = sa.text("UPDATE file SET session_id = :session_id WHERE id = :id")
            db.execute(bind, {"session_id": session_id, "id": file_id})
            free.remove(file_id)


def downgrade() -> None:
    """Back to what revision 0004 made."""
    op.create_index("ix_message_superseded_by_run_id", "message", ["superseded_by_run_id"])
    op.drop_column("file", "shown_sha256")
