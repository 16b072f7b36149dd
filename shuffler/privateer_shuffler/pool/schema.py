"""The tables of the folder's databases and of the database of replicas.

A round's own file has other tables, in `privateer_shuffler.pool.round_file`: a file must not show the order of arrival,
which a shared database cannot hide, so that its reports are encrypted.
"""

from typing import Final

from sqlalchemy import BigInteger, Boolean, Column, Double, Identity, Index, Integer, LargeBinary, MetaData, Table, Text

from privateer_core.serving.store.database import INTEGER, secret_table
from privateer_core.serving.store.leases import declare_leases_table
from privateer_core.serving.store.store_key import declare_seal_table
from privateer_core.serving.store.token_table import declare_spent_tokens_table

_TABLES: Final = MetaData()
TAKEN: Final = Table(
    "taken",
    _TABLES,
    Column("experiment", Text, primary_key=True),
    Column("version", INTEGER, nullable=False),
    Column("digest", LargeBinary, nullable=False),
    Column("over", Boolean, nullable=False),
)
SECRET: Final = secret_table(_TABLES)
SPENT: Final = declare_spent_tokens_table("spent", _TABLES)
ROUNDS: Final = Table(
    "rounds",
    _TABLES,
    Column("id", BigInteger, Identity(always=True), primary_key=True),
    Column("digest", LargeBinary, nullable=False, unique=True),
    Column("label", LargeBinary, nullable=False),
    Column("secret", LargeBinary, nullable=False),
    Column("batch", BigInteger, nullable=False, server_default="0"),
    Column("held", BigInteger, nullable=False, server_default="0"),
    Column("ended_at", Double, nullable=False, server_default="0"),
    Column("closing", LargeBinary),  # of the batch, if its reports are shares, and the helper has decided
    postgresql_with={"fillfactor": 50},
)
PIECES: Final = Table(
    "pieces",
    _TABLES,
    Column("round", BigInteger, nullable=False),
    Column("piece", LargeBinary, nullable=False),
    info={"postgresql": ["ALTER TABLE pieces ALTER piece SET STORAGE EXTERNAL"]},
)
Index("pieces_of_round", PIECES.c.round)
FINGERPRINTS: Final = Table(
    "fingerprints",
    _TABLES,
    Column("fingerprint", LargeBinary, primary_key=True),
    Column("round", BigInteger, nullable=False),
)
Index("fingerprints_of_round", FINGERPRINTS.c.round)


def _declare_key_table(name: str) -> Table:
    return Table(
        name,
        _TABLES,
        Column("id", Integer, primary_key=True, autoincrement=False),
        Column("public_key", LargeBinary, nullable=False),
    )


SERVER: Final = _declare_key_table("server")  # the key of the first server that replicas have met
SIGNER: Final = _declare_key_table("signer")  # the replicas' own key
SEAL: Final = declare_seal_table(_TABLES)
SHARED_TABLES: Final = (TAKEN, ROUNDS, PIECES, FINGERPRINTS, declare_leases_table(_TABLES), SPENT, SERVER, SIGNER, SEAL)
