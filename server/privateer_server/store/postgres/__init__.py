"""The data of servers that share them: two PostgreSQL databases, of which one is never copied nor put back."""

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from privateer_core.serving.store.postgres import ConnectionPool
from privateer_core.serving.store.store_key import read_store_key
from privateer_server.publication_log import PublicationLog, read_identity
from privateer_server.settings import ServerSettings
from privateer_server.store.postgres import schema
from privateer_server.store.postgres.journal import PostgresJournal
from privateer_server.store.postgres.notifications import PostgresNotifications
from privateer_server.store.postgres.round_keys import PostgresKeyStore
from privateer_server.store.postgres.store import PostgresStore

Databases = tuple[
    PostgresStore, PostgresJournal, PostgresKeyStore, PublicationLog, Mapping[str, Path], PostgresNotifications
]


def open_databases(settings: ServerSettings) -> Databases:
    """Connect to both databases, and bring them to this version.

    Raises
    ------
    SpecError
        If a database cannot be used or is of a newer version, or a key file is missing or another one.
    """
    store_key = read_store_key(settings.store_key_file)
    with ExitStack() as stack:
        shared = ConnectionPool(settings.database, schema.STORE, "PRIVATEER_DATABASE")
        stack.callback(shared.close)
        unshared = ConnectionPool(settings.journal_database, schema.JOURNAL, "PRIVATEER_JOURNAL_DATABASE")
        stack.callback(unshared.close)
        store, journal, keys = PostgresStore(shared), PostgresJournal(unshared), PostgresKeyStore(unshared, store_key)
        identity = read_identity(settings.data, settings.identity)
        log = PublicationLog(store, journal, identity, "PRIVATEER_JOURNAL_DATABASE")
        stack.pop_all()
    return store, journal, keys, log, {}, PostgresNotifications(settings.database)
