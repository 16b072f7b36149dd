"""Tables of spent upload tokens, ordered by the expiry of their keys, so that expired tokens are deleted in blocks."""

from typing import Final

from sqlalchemy import Column, LargeBinary, MetaData, PrimaryKeyConstraint, Table, delete, select, tuple_

from privateer_core.serving.store.database import INTEGER, Database

_GRACE_SECONDS: Final = 86_400
"""Delay of deletions, so that a clock that is wrong by less than a day cannot cause double spending."""
_DELETION_BATCH_SIZE: Final = 5000


def spent_tokens_table(name: str, tables: MetaData, *columns: Column[bytes]) -> Table:
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

    Each call is a short transaction of its own, since reports wait meanwhile.
    """
    key = tuple_(table.c.expires, table.c.token)
    expired = select(table.c.expires, table.c.token).where(table.c.expires <= int(now) - _GRACE_SECONDS)
    batch = expired.order_by(table.c.expires, table.c.token).limit(_DELETION_BATCH_SIZE)
    with database.transaction() as db:
        return db.execute(delete(table).where(key.in_(batch))).rowcount == _DELETION_BATCH_SIZE
