"""The shuffler's signing key: made at the first start, never leaves the data folder."""

import os
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from privateer.errors import SpecError


def load_key(folder: Path) -> Ed25519PrivateKey:
    """The Ed25519 key kept in ``folder``; made there (mode 0600) if there is none.

    Raises
    ------
    SpecError
        If the file holds no key.
    """
    path = folder / "shuffler.key"
    if not path.exists():
        _write(path, Ed25519PrivateKey.generate().private_bytes_raw().hex(), 0o600)
    try:
        return Ed25519PrivateKey.from_private_bytes(bytes.fromhex(path.read_text()))
    except ValueError as error:
        raise SpecError(
            "shuffler.key holds no key",
            field="PRIVATEER_DATA",
            remedy="restore it, or delete it and let the server trust the new one",
        ) from error


def public_hex(key: Ed25519PrivateKey) -> str:
    """The public half, 64 hexadecimal digits."""
    return key.public_key().public_bytes_raw().hex()


def publish_key(key: Ed25519PrivateKey, path: Path) -> None:
    """Write the public half where the server looks for shufflers to trust."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = public_hex(key) + "\n"
    if not path.exists() or path.read_text() != text:
        _write(path, text, 0o644)


def _write(path: Path, text: str, mode: int) -> None:
    draft = path.with_name(f".{path.name}.new")  # renamed when whole: nobody reads half a key
    draft.unlink(missing_ok=True)
    with open(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode), "w") as file:
        os.fchmod(file.fileno(), mode)  # whatever the process's mask: the server reads the public half
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
