"""Files of keys: whether they hold one, whether the halves fit each other, and whether the running server has it."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from privateer_core.errors import SpecError
from privateer_core.wire.keys import public_hex, public_key_files, read_public_keys, read_signing_key, signing_key_id
from privateer_lab.doctor.checks import Checkup
from privateer_lab.doctor.files import check_secret, is_open_to_writers
from privateer_lab.doctor.listeners import page

_STORE_KEY_SIZE: Final = 32


def signing_key(found: Checkup, path: Path, setting: str) -> Ed25519PrivateKey | None:
    """Return the private key in a file; None, and a finding, if there is none."""
    if not path.exists():
        found.warn("key", f"there is no {path.name}", "nothing, if the service never started; else restore the file")
        return None
    try:
        return read_signing_key(path, setting)
    except SpecError as error:
        found.fail("key", error.detail, error.remedy or "restore it")
        return None


def check_store_key(found: Checkup, path: Path | None) -> None:
    """Check the file with the key that encrypts what replicas keep in a database."""
    if path is None or not path.is_file() or path.stat().st_size != _STORE_KEY_SIZE:
        remedy = "put the file back that all replicas have; without it none starts"
        found.fail("round keys", "PRIVATEER_STORE_KEY_FILE names no file of 32 bytes", remedy)
    elif path.stat().st_mode & 0o077:
        found.warn("round keys", "other users may read PRIVATEER_STORE_KEY_FILE", "chmod 600, or a secret mount")
    else:
        found.ok("round keys", "the file that encrypts the keys of open rounds is there, for its owner alone")


def check_public_half(found: Checkup, key: Ed25519PrivateKey, public: Path) -> None:
    """Check that the public half of a key is where others look for it."""
    try:
        text = public.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError):
        text = ""
    if text == public_hex(key):
        found.ok("key", f"the key is whole, and {public.name} is its public half")
    else:
        found.fail("key", f"{public.name} is not the public half of this key", "restart the service, which writes it")


def check_trusted(found: Checkup, check: str, places: Sequence[Path]) -> set[str]:
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


_IDENTITY: Final = "identity"
_LOST: Final = "put it back; a start without it makes another key, and devices and shufflers refuse the server"


def check_identity_key(found: Checkup, path: Path, folder: Path | None, published: int) -> str | None:
    """Check the file of a server's key, and return the public half, hexadecimal; None if there is none.

    Parameters
    ----------
    folder
        The data folder, whose files are looked at anyway; None: there is none.
    published
        How many publications the log has that the key signs.
    """
    if not path.exists():
        if published:
            found.fail(_IDENTITY, f"there is no {path.name}, and {published:,} publications are in the log", _LOST)
        else:
            found.warn(_IDENTITY, f"there is no {path.name}", "nothing, if the server never started; else put it back")
        return None
    if folder is None or folder not in path.parents:
        check_secret(found, path)
    try:
        return public_hex(read_signing_key(path, "PRIVATEER_IDENTITY"))
    except SpecError as error:
        found.fail(_IDENTITY, error.detail, _LOST)
        return None


def check_signer(found: Checkup, public: str | None, url: str, *, answers: bool) -> None:
    """Compare a key with that of the server that answers: servers that share their data have one key on record."""
    if public is None:
        return
    shown = page(f"{url}/log/key").get("key") if answers else None
    if shown is None or shown == public:
        also = ", and the server that answers has the same" if shown else ""
        found.ok(_IDENTITY, f"the key that signs publications is there{also}")
    else:
        remedy = "name the file that the server has (PRIVATEER_IDENTITY); for another key see docs/operations.md"
        found.fail(_IDENTITY, f"the server at {url} signs with another key than this file's", remedy)
