"""Tables of spent upload tokens: those whose keys expire first stand together, and are forgotten first."""

from typing import Final

from sqlalchemy import Column, LargeBinary, MetaData, PrimaryKeyConstraint, Table, delete, select, tuple_

from privateer_core.serving.store.database import INTEGER, Database

_GRACE_SECONDS: Final = 86_400
"""A clock that is set wrong by less than a day has no token spent twice."""
_FORGOTTEN_AT_ONCE: Final = 5000


def spent_table(name: str, tables: MetaData, *columns: Column[bytes]) -> Table:
    """Declare a table of tokens: when the key of each expires, in seconds since 1970, its hash, and further columns."""
    return Table(
        name,
        tables,
        Column("expires", INTEGER, nullable=False),
        Column("token", LargeBinary, nullable=False),
        *columns,
        PrimaryKeyConstraint("expires", "token"),
        sqlite_with_rowid=False,
    )


def forget_expired(database: Database, spent: Table, now: float) -> bool:
    """Forget a few thousand tokens whose keys expired more than a day ago; whether there may be more of them.

    Each call is a short transaction of its own, since whoever reports waits meanwhile.
    """
    key = tuple_(spent.c.expires, spent.c.token)
    over = select(spent.c.expires, spent.c.token).where(spent.c.expires <= int(now) - _GRACE_SECONDS)
    first = over.order_by(spent.c.expires, spent.c.token).limit(_FORGOTTEN_AT_ONCE)
    with database.transaction() as db:
        return db.execute(delete(spent).where(key.in_(first))).rowcount == _FORGOTTEN_AT_ONCE
