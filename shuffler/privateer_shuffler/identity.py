"""The shuffler's signing key: made at the first start, never leaves the data folder."""

from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from privateer.wire.keys import make_signing_key, read_signing_key


def load_key(folder: Path) -> Ed25519PrivateKey:
    """The Ed25519 key kept in ``folder``; made there (mode 0600) if there is none.

    Raises
    ------
    SpecError
        If the file holds no key.
    """
    path = folder / "shuffler.key"
    make_signing_key(path)
    return read_signing_key(path, "PRIVATEER_DATA")
