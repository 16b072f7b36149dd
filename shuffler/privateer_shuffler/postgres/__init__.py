"""What shufflers share that stand behind one balancer: a PostgreSQL database of their own."""

from contextlib import ExitStack

from sqlalchemy import MetaData

from privateer_core.errors import SpecError
from privateer_core.serving.store.postgres import ConnectionPool, row, run
from privateer_core.serving.store.store_key import StoreKey, read_store_key, seal_table
from privateer_shuffler.postgres import schema
from privateer_shuffler.postgres.pool_store import SharedPin, SharedPoolStore
from privateer_shuffler.settings import ShufflerSettings


def open_database(settings: ShufflerSettings, public_key: bytes) -> tuple[SharedPoolStore, SharedPin]:
    """Connect to the database, and bring it to this version.

    Parameters
    ----------
    public_key
        Of the key that signs batches.

    Raises
    ------
    SpecError
        If the database cannot be used or is of a newer version, or the replicas on it have another key.
    """
    store_key = StoreKey(read_store_key(settings.store_key_file))
    with ExitStack() as stack:
        pool = ConnectionPool(settings.database, schema.SHUFFLER, "PRIVATEER_DATABASE")
        stack.callback(pool.close)
        store_key.check(pool, seal_table(MetaData()))
        _check_signer(pool, public_key)
        opened = SharedPoolStore(pool, store_key, settings.tokens.required), SharedPin(pool, settings.server_key)
        stack.pop_all()
    return opened


def _check_signer(pool: ConnectionPool, public_key: bytes) -> None:
    """Refuse to sign with another key than the replicas on this database: the server takes batches of one."""
    with pool.transaction() as db:
        run(db, "INSERT INTO signer VALUES (1, %s) ON CONFLICT DO NOTHING", public_key)
        found = row(db, "SELECT public_key FROM signer")
    if found != (public_key,):
        raise SpecError(
            "the shufflers on this database sign with another key",
            field="PRIVATEER_SIGNING_KEY",
            remedy="give all replicas the same key file; docs/operations.md says how to replace it",
        )
