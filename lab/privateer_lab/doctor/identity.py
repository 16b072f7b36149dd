"""The key that signs what a server publishes: whether it is there, its owner's alone, and the running server's."""

from pathlib import Path
from typing import Final

from privateer_core.errors import SpecError
from privateer_core.wire.keys import public_hex, read_signing_key
from privateer_lab.doctor.answers import page
from privateer_lab.doctor.files import check_secret
from privateer_lab.doctor.findings import Findings

_CHECK: Final = "identity"
_LOST: Final = "put it back; a start without it makes another key, and devices and shufflers refuse the server"


def check_identity_key(found: Findings, path: Path, folder: Path | None, published: int) -> str | None:
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
            found.fail(_CHECK, f"there is no {path.name}, and {published:,} publications are in the log", _LOST)
        else:
            found.warn(_CHECK, f"there is no {path.name}", "nothing, if the server never started; else put it back")
        return None
    if folder is None or folder not in path.parents:
        check_secret(found, path)
    try:
        return public_hex(read_signing_key(path, "PRIVATEER_IDENTITY"))
    except SpecError as error:
        found.fail(_CHECK, error.detail, _LOST)
        return None


def check_signer(found: Findings, public: str | None, url: str, *, answers: bool) -> None:
    """Compare a key with that of the server that answers: servers that share their data have one key on record."""
    if public is None:
        return
    shown = page(f"{url}/log/key").get("key") if answers else None
    if shown is None or shown == public:
        also = ", and the server that answers has the same" if shown else ""
        found.ok(_CHECK, f"the key that signs publications is there{also}")
    else:
        remedy = "name the file that the server has (PRIVATEER_IDENTITY); for another key see docs/operations.md"
        found.fail(_CHECK, f"the server at {url} signs with another key than this file's", remedy)
