"""Files of keys: whether they hold one, and whether the halves fit each other. No key is told."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from privateer_core.errors import SpecError
from privateer_core.wire.keys import public_hex, public_key_files, read_public_keys, read_signing_key, signing_key_id
from privateer_lab.doctor.files import is_open_to_writers
from privateer_lab.doctor.findings import Findings

_STORE_KEY_SIZE: Final = 32


def signing_key(found: Findings, path: Path, setting: str) -> Ed25519PrivateKey | None:
    """Return the private key in a file; None, and a finding, if there is none."""
    if not path.exists():
        found.warn("key", f"there is no {path.name}", "nothing, if the service never started; else restore the file")
        return None
    try:
        return read_signing_key(path, setting)
    except SpecError as error:
        found.fail("key", error.detail, error.remedy or "restore it")
        return None


def check_store_key(found: Findings, path: Path | None) -> None:
    """Check the file with the key that encrypts what replicas keep in a database."""
    if path is None or not path.is_file() or path.stat().st_size != _STORE_KEY_SIZE:
        remedy = "put the file back that all replicas have; without it none starts"
        found.fail("round keys", "PRIVATEER_STORE_KEY_FILE names no file of 32 bytes", remedy)
    elif path.stat().st_mode & 0o077:
        found.warn("round keys", "other users may read PRIVATEER_STORE_KEY_FILE", "chmod 600, or a secret mount")
    else:
        found.ok("round keys", "the file that encrypts the keys of open rounds is there, for its owner alone")


def check_public_half(found: Findings, key: Ed25519PrivateKey, public: Path) -> None:
    """Check that the public half of a key is where others look for it."""
    try:
        text = public.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError):
        text = ""
    if text == public_hex(key):
        found.ok("key", f"the key is whole, and {public.name} is its public half")
    else:
        found.fail("key", f"{public.name} is not the public half of this key", "restart the service, which writes it")


def check_trusted(found: Findings, check: str, places: Sequence[Path]) -> set[str]:
    """Check files of public keys that a service trusts, and return the ids of the keys."""
    files = list(public_key_files(places))
    trusted = ids_of(files)
    if missing := [place for place in places if not place.exists()]:
        found.warn(check, f"there is no {missing[0].name}", "put the public keys there, or correct the setting")
    if exposed := [path for path in files if is_open_to_writers(path)]:
        remedy = f"chmod go-w {exposed[0].parent} and what is in it"
        found.fail(check, f"other users may change {exposed[0].name}", remedy)
    if broken := [path for path in files if not ids_of([path])]:
        found.fail(check, f"{broken[0].name} holds no public key", "copy it again, or remove it")
    if trusted:
        found.ok(check, f"{len(trusted)} public key{'s are' if len(trusted) > 1 else ' is'} trusted")
    return trusted


def ids_of(files: Iterable[Path]) -> set[str]:
    """Return the ids of the keys in files; those that hold none are left out."""
    ids = set[str]()
    for path in files:
        with suppress(OSError, ValueError):
            ids.update(map(signing_key_id, read_public_keys(path)))
    return ids
