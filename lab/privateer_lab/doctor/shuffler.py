"""What the doctor looks at where a shuffler has its data. How many reports it holds is not told."""

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Final

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from privateer_core.wire.keys import public_hex, public_key_files, signing_key_id
from privateer_lab.doctor.checks import Checkup
from privateer_lab.doctor.credentials import check_upload_tokens
from privateer_lab.doctor.files import MIB, check_clock, check_disk, check_folder, is_held, shown
from privateer_lab.doctor.key_files import check_public_half, check_store_key, check_trusted, ids_of, signing_key
from privateer_lab.doctor.listeners import Listeners, get, listed_keys
from privateer_lab.doctor.stores import checked
from privateer_shuffler.pool.round import Label
from privateer_shuffler.pool.round_file import REPAIR, SUFFIX, read_label
from privateer_shuffler.pool.round_file import ROUND_DATABASE as ROUND
from privateer_shuffler.pool.store import HISTORY_DATABASE as HISTORY
from privateer_shuffler.pool.store import HISTORY_FILE
from privateer_shuffler.resources import KEY_FILE
from privateer_shuffler.settings import ShufflerSettings

_SPARE: Final = 64 * MIB
_NEXT: Final = 3
"""The next round reserves its places, and a round that ends is overwritten by way of its log."""
_TRUST: Final = "give its public key file to the server's operator, for PRIVATEER_SHUFFLER_KEYS"


def examine_shuffler(settings: ShufflerSettings, trusted: Sequence[Path] | None = None) -> Checkup:
    """Look at a shuffler's folder and listeners.

    Parameters
    ----------
    trusted
        Where the public keys are that its server trusts, if that is here.
    """
    found = Checkup("shuffler")
    if settings.database:
        return _examine_shared(found, settings, trusted)
    if not check_folder(found, settings.data, "PRIVATEER_DATA"):
        return found
    if not any(settings.data.iterdir()):
        found.warn(
            "folder", "the folder is empty", "nothing, if the shuffler never started; else correct PRIVATEER_DATA"
        )
        return found
    key = _examine_key(found, settings, settings.data / KEY_FILE, "PRIVATEER_DATA", trusted)
    check_trusted(found, "senders", settings.sender_keys)
    held = is_held(settings.data / HISTORY_FILE)
    names = found.settled(lambda seen: _check_rounds(seen, settings.data), once=held is False)
    check_upload_tokens(found, settings.tokens, settings.host, names)
    check_clock(found, settings.data)
    held_bytes = sum(path.stat().st_size for path in settings.data.glob(f"*{SUFFIX}") if path.exists())
    check_disk(found, [settings.data], _SPARE + _NEXT * held_bytes)
    _check_answers(found, settings, held, key)
    return found


def _examine_key(
    found: Checkup, settings: ShufflerSettings, default: Path, field: str, trusted: Sequence[Path] | None
) -> Ed25519PrivateKey | None:
    key = signing_key(found, settings.signing_key or default, field)
    if key:
        if settings.public_key_file:
            check_public_half(found, key, settings.public_key_file)
        _check_trust(found, key, trusted)
    return key


def _examine_shared(found: Checkup, settings: ShufflerSettings, trusted: Sequence[Path] | None) -> Checkup:
    """Look at a shuffler that holds reports in PostgreSQL, of which the doctor opens nothing."""
    remedy = "ask /readyz and /metrics, and PostgreSQL's own tools (docs/operations.md, More than one shuffler)"
    found.warn("database", "reports are held in PostgreSQL, where the doctor does not look", remedy)
    check_store_key(found, settings.store_key_file)
    key = _examine_key(found, settings, settings.data / KEY_FILE, "PRIVATEER_SIGNING_KEY", trusted)
    check_trusted(found, "senders", settings.sender_keys)
    _check_answers(found, settings, None, key)
    return found


def _check_trust(found: Checkup, key: Ed25519PrivateKey, trusted: Sequence[Path] | None) -> None:
    """Check that the server knows the shuffler's key."""
    if trusted is None:
        return
    if signing_key_id(key.public_key()) in ids_of(public_key_files(trusted)):
        found.ok("trust", "the server trusts this shuffler's key")
    else:
        found.fail("trust", "the server does not trust this shuffler's key", _TRUST)


def _check_rounds(found: Checkup, folder: Path) -> list[str]:
    """Check the databases of rounds, and that the history knows what they are of; return their experiments."""
    labels, broken = list[Label](), 0
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        if not path.exists():  # a running shuffler has delivered it
            continue
        copy = checked(found, "rounds", path, ROUND)
        label = _label(found, path, copy) if copy else None
        labels += [label] if label else []
        broken += label is None
    if not broken:
        found.ok("rounds", f"open rounds: {len(labels):,}; their databases are whole")
    # A round is in the history before it has a database.
    if history := checked(found, "history", folder / HISTORY_FILE, HISTORY):
        with closing(history):
            _check_history(found, history, labels)
    return sorted(label.round.experiment for label in labels)


def _label(found: Checkup, path: Path, copy: sqlite3.Connection) -> Label | None:
    with closing(copy):
        try:
            known = read_label(copy)
        except (sqlite3.Error, msgspec.DecodeError, TypeError):
            found.fail("rounds", f"{shown(path)} is damaged", REPAIR)
            return None
    if known is None:
        found.warn("rounds", f"{shown(path)} is of no round", "nothing: the next start deletes it")
        return None
    return known[0]


def _check_history(found: Checkup, history: sqlite3.Connection, labels: Sequence[Label]) -> None:
    rows = history.execute("SELECT experiment, version, digest FROM taken").fetchall()
    last = {experiment: (version, digest) for experiment, version, digest in rows}
    names = [label.round.experiment for label in labels if not _is_known(label, last)]
    if names:
        detail = f"{HISTORY_FILE} does not know the round of {names[0]}: one of the two files is an earlier copy"
        found.fail(
            "history", detail, "never put earlier files back; move the round's database away and lose what it holds"
        )
    else:
        found.ok("history", f"{HISTORY_FILE} knows every round that is open, schema {HISTORY.version}")


def _is_known(label: Label, last: dict[str, tuple[int, bytes]]) -> bool:
    version, digest = last.get(label.round.experiment, (0, b""))
    return label.round.version < version or (label.round.version, label.digest) == (version, digest)


def _check_answers(
    found: Checkup, settings: ShufflerSettings, held: bool | None, key: Ed25519PrivateKey | None
) -> None:
    listeners = Listeners((settings.host, settings.port), (settings.admin_host, settings.admin_port))
    if listeners.check(found, held) and key:
        listed = listed_keys(listeners.public)
        if listed and listed != [public_hex(key)]:
            detail = f"the shuffler at {listeners.public} signs with another key than that of this folder"
            found.fail("answers", detail, "name its folder, or the ports of this one")
    _check_server(found, settings.server_url)


def _check_server(found: Checkup, url: str) -> None:
    """Check that the address of the server is its private listener's."""
    health, metrics = get(f"{url}/healthz"), get(f"{url}/metrics")
    if health is None:
        found.warn("its server", f"no server answers at {url}", "start it, or correct PRIVATEER_SERVER_URL")
    elif metrics is None or not metrics.is_success:
        detail = f"what answers at {url} is not a server's private listener, which takes batches"
        found.fail("its server", detail, "correct PRIVATEER_SERVER_URL: the private port is 8002 unless it was changed")
    else:
        found.ok("its server", f"the server's private listener answers at {url}")
