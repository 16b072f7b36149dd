"""The key in a file that all replicas of a service have, and no database: it encrypts what a database keeps."""

import hashlib
import os
from pathlib import Path
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from sqlalchemy import Column, Integer, LargeBinary, MetaData, Table, select

from privateer_core.errors import SpecError
from privateer_core.serving.store.database import Database, keep_first

_SIZE: Final = 32
_NONCE_SIZE: Final = 12
_SEAL: Final = b"privateer/store-key/1"
_FIELD: Final = "PRIVATEER_STORE_KEY_FILE"


def seal_table(tables: MetaData) -> Table:
    """Declare the table by which a database knows its key."""
    return Table(
        "seal",
        tables,
        Column("id", Integer, primary_key=True, autoincrement=False),
        Column("sealed", LargeBinary, nullable=False),
    )


def read_store_key(path: Path | None) -> bytes:
    """Return the key in a file of 32 bytes."""
    remedy = "make one with openssl rand -out FILE 32, for the service's user alone, and give it to all replicas"
    try:
        key = path.read_bytes() if path else b""
    except OSError as error:
        detail = f"the key file cannot be read: {error.strerror}"
        raise SpecError(detail, field=_FIELD, remedy=remedy) from None
    if len(key) != _SIZE:
        raise SpecError(f"the key file has {len(key)} bytes, and not {_SIZE}", field=_FIELD, remedy=remedy)
    return key


class StoreKey:
    """Encrypts (AES-256-GCM) what a database keeps, and derives further keys.

    key: the 32 bytes.
    """

    def __init__(self, key: bytes) -> None:
        self._key, self._cipher = key, AESGCM(key)

    def derived(self, purpose: bytes) -> bytes:
        """Return a key for a purpose: BLAKE2b of its name, keyed."""
        return hashlib.blake2b(purpose, key=self._key, digest_size=_SIZE).digest()

    def wrapped(self, raw: bytes, about: bytes) -> bytes:
        """Encrypt bytes; ``about`` says what they are, and must be the same when they are decrypted."""
        nonce = os.urandom(_NONCE_SIZE)
        return nonce + self._cipher.encrypt(nonce, raw, about)

    def unwrapped(self, wrapped: bytes, about: bytes) -> bytes | None:
        """Decrypt what `wrapped` returned; None if it is damaged or of another key or purpose."""
        try:
            return self._cipher.decrypt(wrapped[:_NONCE_SIZE], wrapped[_NONCE_SIZE:], about)
        except (InvalidTag, ValueError):
            return None

    def check(self, database: Database, seal: Table) -> None:
        """See that this is the key of a database, whose `seal_table` knows it from then on."""
        with database.connection() as db:
            sealed = db.execute(select(seal.c.sealed)).scalar_one_or_none()
        if sealed is None:
            if database.is_read_only:
                return
            with database.transaction() as db:
                sealed = keep_first(db, seal.c.sealed, self.wrapped(b"", _SEAL))
        if self.unwrapped(sealed, _SEAL) is None:
            remedy = "name the file that the replicas had; docs/operations/ says what to do if it is lost"
            detail = "what the database keeps of open rounds is encrypted under another key"
            raise SpecError(detail, field=_FIELD, remedy=remedy)
