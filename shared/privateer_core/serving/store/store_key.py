"""The encryption key of a database, in a file that all replicas of a service share."""

import hashlib
import os
from pathlib import Path
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from sqlalchemy import Column, Integer, LargeBinary, MetaData, Table, select

from privateer_core.errors import SpecError
from privateer_core.serving.store.database import Database, insert_or_get

_SIZE: Final = 32
_NONCE_SIZE: Final = 12
_SEAL_PURPOSE: Final = b"privateer/store-key/1"
_FIELD: Final = "PRIVATEER_STORE_KEY_FILE"


def declare_seal_table(tables: MetaData) -> Table:
    """Declare the table with the seal by which a database recognizes its key."""
    return Table(
        "seal",
        tables,
        Column("id", Integer, primary_key=True, autoincrement=False),
        Column("sealed", LargeBinary, nullable=False),
    )


def read_store_key(path: Path | None) -> bytes:
    """Return the key in a file of 32 bytes, and refuse other files."""
    remedy = "make one with openssl rand -out FILE 32, for the service's user alone, and give it to all replicas"
    try:
        key = path.read_bytes() if path else b""
    except OSError as error:
        raise SpecError(f"the key file cannot be read: {error.strerror}", field=_FIELD, remedy=remedy) from None
    if len(key) != _SIZE:
        raise SpecError(f"the key file has {len(key)} bytes, and not {_SIZE}", field=_FIELD, remedy=remedy)
    return key


class StoreKey:
    """A key that encrypts values of a database (AES-256-GCM), and derives further keys."""

    def __init__(self, key: bytes) -> None:
        self._key, self._cipher = key, AESGCM(key)

    def derive_key(self, purpose: bytes) -> bytes:
        """Derive a key for a purpose, by keyed BLAKE2b of its name."""
        return hashlib.blake2b(purpose, key=self._key, digest_size=_SIZE).digest()

    def encrypt(self, plaintext: bytes, purpose: bytes) -> bytes:
        """Encrypt bytes; ``purpose`` is authenticated, and must be the same for decryption."""
        nonce = os.urandom(_NONCE_SIZE)
        return nonce + self._cipher.encrypt(nonce, plaintext, purpose)

    def decrypt(self, ciphertext: bytes, purpose: bytes) -> bytes | None:
        """Decrypt the result of `encrypt`; None if it is damaged or of another key or purpose."""
        try:
            return self._cipher.decrypt(ciphertext[:_NONCE_SIZE], ciphertext[_NONCE_SIZE:], purpose)
        except (InvalidTag, ValueError):
            return None

    def check(self, database: Database, seal: Table) -> None:
        """Refuse a database that was sealed with another key, and seal a new database with this key."""
        with database.connection() as db:
            sealed = db.execute(select(seal.c.sealed)).scalar_one_or_none()
        if sealed is None:
            if database.is_read_only:
                return
            with database.transaction() as db:
                sealed = insert_or_get(db, seal.c.sealed, self.encrypt(b"", _SEAL_PURPOSE))
        if self.decrypt(sealed, _SEAL_PURPOSE) is None:
            remedy = "name the file that the replicas had; docs/operations/ says what to do if it is lost"
            detail = "what the database keeps of open rounds is encrypted under another key"
            raise SpecError(detail, field=_FIELD, remedy=remedy)
