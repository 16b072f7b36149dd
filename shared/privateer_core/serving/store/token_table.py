"""Tables of spent upload tokens, ordered by the expiry of their keys, so that expired tokens are deleted in blocks."""

from typing import Final

from sqlalchemy import Column, LargeBinary, MetaData, PrimaryKeyConstraint, Table, delete, select, tuple_

from privateer_core.serving.store.database import INTEGER, Database

_GRACE_SECONDS: Final = 86_400
"""Delay of deletions, so that a clock that is wrong by less than a day cannot cause double spending."""
_DELETION_BATCH_SIZE: Final = 5000


def declare_spent_tokens_table(name: str, tables: MetaData, *columns: Column[bytes]) -> Table:
    """Declare a table of tokens: the expiry of the key, in seconds since 1970, the hash, and further columns."""
    return Table(
        name,
        tables,
        Column("expires", INTEGER, nullable=False),
        Column("token", LargeBinary, nullable=False),
        *columns,
        PrimaryKeyConstraint("expires", "token"),
        sqlite_with_rowid=False,
    )


def delete_expired(database: Database, table: Table, now: float) -> bool:
    """Delete a few thousand tokens whose keys expired more than a day ago, and return whether more may remain.

    Each call is a short transaction of its own, since reports wait meanwhile. Millions of tokens expire in one second,
    that of their key, so the end of the batch is looked up: a list of its tokens would be compared with them all.
    """
    key = tuple_(table.c.expires, table.c.token)
    is_expired = table.c.expires <= int(now) - _GRACE_SECONDS
    query = select(table.c.expires, table.c.token).where(is_expired).order_by(table.c.expires, table.c.token)
    with database.transaction() as db:
        last = db.execute(query.offset(_DELETION_BATCH_SIZE - 1).limit(1)).one_or_none()
        db.execute(delete(table).where(is_expired if last is None else key <= tuple_(*last)))
    return last is not None
