"""What the doctor looks at where an issuer of upload tokens has its data. Who had tokens is not told."""

import time
from collections import defaultdict
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from privateer_core.errors import Malformed
from privateer_core.wire.tokens.token_keys import Directory, TokenKey
from privateer_issuer.store import DATABASE, FILE, KeyRow
from privateer_lab.doctor.checks import Checkup
from privateer_lab.doctor.files import MIB, check_clock, check_disk, check_folder, check_secret, is_held
from privateer_lab.doctor.listeners import Listeners
from privateer_lab.doctor.stores import checked

_SPARE: Final = 64 * MIB
_DAY: Final = 86_400
_START: Final = "start the issuer, which does it; if it runs, see its disk and its log"
_Rows = Mapping[str, list[KeyRow]]


@dataclass(frozen=True)
class IssuerPlace:
    """Where an issuer is.

    Attributes
    ----------
    data, shown
        Its folder, and the file of its public keys.
    listeners
        Where it listens; None: its private port is not known.
    secrets
        The file of what it shares with the application's backend, if there is one.
    """

    data: Path
    shown: Path
    listeners: Listeners | None = None
    secrets: Path | None = None


def examine_issuer(place: IssuerPlace) -> Checkup:
    """Look at an issuer's folder and listeners."""
    found = Checkup("issuer")
    if not check_folder(found, place.data, "PRIVATEER_DATA"):
        return found
    if not any(place.data.iterdir()):
        found.warn("folder", "the folder is empty", "nothing, if the issuer never started; else correct PRIVATEER_DATA")
        return found
    held = is_held(place.data / FILE)
    found.settled(lambda seen: _check_database(seen, place), once=held is False)
    if place.secrets:
        _check_secrets(found, place.secrets)
    check_clock(found, place.data)
    check_disk(found, [place.data], _SPARE)
    if place.listeners:
        place.listeners.check(found, held)
    return found


def _check_database(found: Checkup, place: IssuerPlace) -> None:
    copy = checked(found, "database", place.data / FILE, DATABASE)
    if copy is None:
        return
    rows = defaultdict[str, list[KeyRow]](list)
    with closing(copy):
        for row in copy.execute("SELECT * FROM keys ORDER BY experiment, not_before"):
            rows[row[0]].append(KeyRow(*row))
    found.ok("database", f"{FILE} is whole, schema {DATABASE.version}")
    _check_ages(found, rows)
    _check_shown(found, rows, place.shown)


def _check_ages(found: Checkup, rows: _Rows) -> None:
    """Check that each experiment has a key that lasts, and that no expired key could still sign."""
    now, newest = time.time(), {name: those[-1] for name, those in rows.items()}
    expired = sorted(name for name, key in newest.items() if now >= key.not_after)
    due = sorted(name for name, key in newest.items() if (key.not_before + key.not_after) / 2 <= now < key.not_after)
    left = sum(bool(key.private) and now >= key.not_after for those in rows.values() for key in those)
    if expired:
        found.fail("keys", f"the newest key of {expired[0]} has expired: no token of it counts{_more(expired)}", _START)
    if due:
        found.warn(
            "keys", f"the key of {due[0]} has lived for half of its time, and has no successor{_more(due)}", _START
        )
    if left:
        found.warn("keys", f"private halves of {left:,} expired keys are not erased", _START)
    if not rows:
        found.warn("keys", "there is no key", "nothing, if the issuer never started; else see PRIVATEER_EXPERIMENTS")
    elif not (expired or due or left):
        oldest = max((now - key.not_before) / _DAY for key in newest.values())
        first = min((key.not_after - now) / _DAY for key in newest.values())
        found.ok("keys", f"keys of {len(newest):,} experiments: {oldest:.0f} days old at most, {first:.0f} days left")


def _check_shown(found: Checkup, rows: _Rows, path: Path) -> None:
    """Check that others find the public halves of these very keys."""
    own = {(name, TokenKey(*row[3:4], row.not_before, row.not_after).id) for name in rows for row in rows[name]}
    try:
        directory = Directory.decode(path.read_bytes())
        shown = {(name, key.id) for name in directory.experiments for key in directory.keys(name)}
    except (OSError, Malformed):
        shown = set()
    if shown and shown <= own:
        found.ok("keys", f"{path.name} shows public halves of these keys")
    else:
        detail = f"{path.name} does not show the keys of this folder"
        found.fail("keys", detail, "restart the issuer, which writes the file, or correct PRIVATEER_PUBLIC_KEY_FILE")


def _check_secrets(found: Checkup, path: Path) -> None:
    if path.is_file():
        check_secret(found, path)
    else:
        found.fail("permissions", f"there is no {path.name}", "correct PRIVATEER_ATTESTATION_SECRETS")


def _more(names: list[str]) -> str:
    return f", and so for {len(names) - 1:,} more" if len(names) > 1 else ""
