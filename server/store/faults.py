"""What goes wrong in a database, as our own errors: no SQL, value or address in a text."""

from typing import NoReturn

import sqlalchemy as sa

from server.errors import Duplicate, NotFound, ServerError, StoreRefused, StoreUnavailable

_LOCKED = "the database is locked; end the program that holds it, or try again"
_FULL = "the disk of the database is full; free some space"
_READONLY = "the database is read-only; make it writable for this user"
_BROKEN_DISK = "the disk of the database cannot be read or written; check it"
_DAMAGED = "the database file is damaged or none; restore a backup"
_NO_FILE = "the database file cannot be opened; check that its folder exists and is writable"
_NO_SCHEMA = "the database lacks this version's tables; run `headway migrate`"
_GONE = "the database does not answer; check that it runs, its address, name, user and password"
_CROWDED = "the database has no room for another connection; raise its limit or try again"
_BUSY = "no database connection became free in time; try again"

_SQLITE_REASONS = {
    "SQLITE_BUSY": _LOCKED,
    "SQLITE_LOCKED": _LOCKED,
    "SQLITE_FULL": _FULL,
    "SQLITE_READONLY": _READONLY,
    "SQLITE_IOERR": _BROKEN_DISK,
    "SQLITE_CORRUPT": _DAMAGED,
    "SQLITE_NOTADB": _DAMAGED,
    "SQLITE_CANTOPEN": _NO_FILE,
    "SQLITE_PERM": _NO_FILE,
}
"""By primary result code; extended ones begin with it. Source: sqlite.org/rescode.html."""

_POSTGRESQL_REASONS = {
    "25006": _READONLY,
    "40": _LOCKED,
    "42P01": _NO_SCHEMA,
    "42703": _NO_SCHEMA,
    "53100": _FULL,
    "53": _CROWDED,
    "55P03": _LOCKED,
    "57": _GONE,
    "58": _BROKEN_DISK,
    "08": _GONE,
    "XX": _DAMAGED,
}
"""By SQLSTATE, else by its class of two characters. Source: PostgreSQL manual, appendix A."""

_UNIQUE = frozenset({"SQLITE_CONSTRAINT_UNIQUE", "SQLITE_CONSTRAINT_PRIMARYKEY", "23505"})
_FOREIGN_KEY = frozenset({"SQLITE_CONSTRAINT_FOREIGNKEY", "23503"})


def reraise(error: sa.exc.SQLAlchemyError) -> NoReturn:
    """Raise *error* as one of ours, from the place where it happened.

    The cause is left out on purpose: a driver's text may quote the row that it refused.
    """
    raise translate(error).with_traceback(error.__traceback__) from None


def translate(error: sa.exc.SQLAlchemyError) -> ServerError:
    """What *error* means for a caller."""
    if isinstance(error, sa.exc.TimeoutError):
        return StoreUnavailable(_BUSY)
    if not isinstance(error, sa.exc.DBAPIError):
        return StoreRefused(type(error).__name__)
    code = _code(error.orig)
    if code in _UNIQUE:
        return Duplicate("there is one with this key already")
    if code in _FOREIGN_KEY:
        return NotFound("what it belongs to is gone")
    reason = _reason(error, code)
    if reason is not None:
        return StoreUnavailable(reason)
    return StoreRefused(f"{type(error.orig).__name__} {code}".strip())


def _reason(error: sa.exc.DBAPIError, code: str) -> str | None:
    if code.startswith("SQLITE_"):
        return _sqlite_reason(error, code)
    if code:
        return _POSTGRESQL_REASONS.get(code) or _POSTGRESQL_REASONS.get(code[:2])
    # A connection that was refused or broke has no code; libpq keeps the server's to itself.
    is_lost = error.connection_invalidated or isinstance(
        error, sa.exc.OperationalError | sa.exc.InterfaceError
    )
    return _GONE if is_lost else None


def _sqlite_reason(error: sa.exc.DBAPIError, code: str) -> str | None:
    if str(error.orig).startswith(("no such table", "no such column")):
        return _NO_SCHEMA  # the only fault that has no code of its own
    return _SQLITE_REASONS.get("_".join(code.split("_")[:2]))


def _code(error: BaseException | None) -> str:
    """SQLite's result code by name, or PostgreSQL's SQLSTATE; empty if the driver gave none."""
    code = getattr(error, "sqlite_errorname", None) or getattr(error, "sqlstate", None)
    return code if isinstance(code, str) else ""
