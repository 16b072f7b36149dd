"""Checks of all services on this machine, above all of shuffler and issuer.

The stores check their own consistency. The number of reports at a shuffler, and the holders of an issuer's tokens, are
not shown.
"""

import sqlite3
import time
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Final

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from privateer_core.errors import Malformed, SpecError
from privateer_core.serving.settings import TokenSettings
from privateer_core.serving.store.copies import is_open_elsewhere
from privateer_core.serving.store.database import SqliteDatabase
from privateer_core.serving.store.store_key import StoreKey
from privateer_core.wire.keys import public_hex, public_key_files, read_signing_key, signing_key_id
from privateer_core.wire.token_keys import Directory
from privateer_issuer.store import DATABASE, IssuerFindings, examine
from privateer_issuer.store import FILE as ISSUER_FILE
from privateer_lab.doctor import checkup as folders
from privateer_lab.doctor import credentials
from privateer_lab.doctor.checkup import UNREADABLE, Check, Checkup, Level
from privateer_lab.doctor.places import (
    NAME_REMEDY,
    IssuerPlace,
    Listeners,
    ServicePlaces,
    check_shown_clock,
    fetch_listed_keys,
    fetch_object,
    fetch_or_none,
)
from privateer_lab.doctor.server import examine_server
from privateer_server.data import IDENTITY_FILE
from privateer_server.settings import ServerSettings
from privateer_shuffler.pool.pool import Label
from privateer_shuffler.pool.round_file import REPAIR, ROUND_DATABASE, SUFFIX, read_label
from privateer_shuffler.pool.spent_tokens import TOKENS_DATABASE, TOKENS_FILE, SpentFindings
from privateer_shuffler.pool.spent_tokens import examine as examine_spent
from privateer_shuffler.pool.store import HISTORY_DATABASE, HISTORY_FILE, describe_unknown_rounds
from privateer_shuffler.resources import KEY_FILE, PIN_FILE, read_pinned_keys
from privateer_shuffler.settings import ShufflerSettings

_N_ROUNDS_ON_DISK: Final = 3
"""Rounds whose size a shuffler needs: the reserved next round, and the log of an overwritten round."""
_DAY: Final = 86_400
_ISSUER: Final = "start the issuer, which does it; if it runs, see its disk and its log"
_SERVER_URL_REMEDY: Final = (
    "correct PRIVATEER_SERVER_URL: the private port is 8002 unless it was changed; if it is right, another process has "
    "the server's port: find out which"
)
_CLAIM_REMEDY: Final = (
    "put the earlier shuffler.key back; else trust the new one, and release the claim (docs/operations/keys.md)"
)
_TRUST_REMEDY: Final = "give its public key file to the server's operator, for PRIVATEER_SHUFFLER_KEYS"
_NEW_KEY_REMEDY: Final = (
    "put the server's identity.key back; if its operator has replaced it, set PRIVATEER_SERVER_KEY "
    "(docs/operations/keys.md)"
)
_ROLLBACK_REMEDY: Final = "never put earlier files back; move the round's database away and lose what it holds"


def examine_all(places: ServicePlaces) -> list[Check]:
    """Check all services on this machine, and the key of the sender of reports."""
    findings = list[Check]()
    if places.server:
        findings += examine_server(places.server).checks
    if places.shuffler:
        findings += examine_shuffler(places.shuffler, places.server).checks
    if places.issuer:
        findings += examine_issuer(places.issuer).checks
    if places.sender:
        checkup, (private, public) = Checkup("sender"), places.sender
        folders.check_secret(checkup, private)
        if key := credentials.find_signing_key(checkup, private, "--data"):
            credentials.check_public_half(checkup, key, public)
        findings += checkup.checks
    return findings


def examine_shuffler(settings: ShufflerSettings, server: ServerSettings | None = None) -> Checkup:
    """Check a shuffler's data, keys and listeners, and its server's if that is on this machine."""
    checkup, folder = Checkup("shuffler"), None if settings.database else settings.data
    if folder and not folders.check_data(checkup, folder):
        return checkup
    field = "PRIVATEER_DATA" if folder else "PRIVATEER_SIGNING_KEY"
    key = credentials.find_signing_key(checkup, settings.signing_key or settings.data / KEY_FILE, field)
    if key:
        if settings.public_key_file:
            credentials.check_public_half(checkup, key, settings.public_key_file)
        if server:
            _check_trust(checkup, key, server.shuffler_keys)
    credentials.check_trusted(checkup, "senders", settings.sender_keys)
    is_in_use = is_open_elsewhere(folder / HISTORY_FILE) if folder else None
    server_keys, experiments = None, list[str]()
    if folder:
        folders.check_writable(checkup, folder)
        server_keys = _read_pin(checkup, folder / PIN_FILE)
        experiments = checkup.repeat(lambda attempt: _examine_rounds(attempt, folder), is_final=is_in_use is False)
        checkup.repeat(lambda attempt: _examine_spent(attempt, folder, settings.tokens), is_final=is_in_use is False)
        credentials.check_token_keys(checkup, settings.tokens, settings.host, experiments)
        folders.check_clock(checkup, folder)
        held_bytes = sum(path.stat().st_size for path in folder.glob(f"*{SUFFIX}") if path.exists())
        folders.check_disk(checkup, [folder], _N_ROUNDS_ON_DISK * held_bytes)
    else:
        store_key = credentials.find_store_key(checkup, settings.store_key_file)
        server_keys = checkup.repeat(lambda attempt: _examine_pool(attempt, settings, store_key), is_final=False)
    _check_answers(checkup, settings, is_in_use, key)
    _check_server_key(checkup, settings.server_key or server_keys or frozenset(), settings.server_url, server)
    if key:
        _check_claims(checkup, experiments, settings.server_url, signing_key_id(key.public_key()))
    return checkup


def _check_claims(checkup: Checkup, experiments: list[str], url: str, own_id: str) -> None:
    """Check that no other shuffler key has the claim of an experiment with reports, which would be refused."""
    holders = {name: fetch_object(f"{url}/experiments/{name}").get("shuffler") for name in experiments}
    contested = [name for name, shuffler in holders.items() if shuffler not in (None, own_id)]
    detail = "another shuffler, or this one with an earlier key, has the claim of {}: the server refuses its batch"
    checkup.add_all(Level.FAIL, "trust", contested, detail, _CLAIM_REMEDY)


def _read_pin(checkup: Checkup, path: Path) -> frozenset[bytes] | None:
    """Read the pinned keys of a shuffler's server; return None, with a finding, if they are invalid."""
    try:
        return read_pinned_keys(path)
    except SpecError as error:
        checkup.refuse("server key", error)
        return None


def _check_server_key(checkup: Checkup, known_keys: frozenset[bytes], url: str, server: ServerSettings | None) -> None:
    """Compare the server's current key, by its listener or its file, with the keys that the shuffler knows."""
    key = fetch_object(f"{url}/log/key").get("key")
    if key is None and server:
        with suppress(SpecError, OSError):
            path = server.publication_key or server.data / IDENTITY_FILE
            key = public_hex(read_signing_key(path, "PRIVATEER_PUBLICATION_KEY"))
    if not known_keys or key is None:
        return
    if key in {known_key.hex() for known_key in known_keys}:
        checkup.ok("server key", "the server has the key that this shuffler knows")
    else:
        detail = "the server signs with another key than this shuffler knows: it follows no new round"
        checkup.fail("server key", detail, _NEW_KEY_REMEDY)


def _check_trust(checkup: Checkup, key: Ed25519PrivateKey, key_places: Sequence[Path]) -> None:
    """Check that the server trusts the shuffler's key."""
    if signing_key_id(key.public_key()) in credentials.read_key_ids(public_key_files(key_places)):
        checkup.ok("trust", "the server trusts this shuffler's key")
    else:
        checkup.fail("trust", "the server does not trust this shuffler's key", _TRUST_REMEDY)


def _examine_rounds(checkup: Checkup, folder: Path) -> list[str]:
    """Check the databases of rounds, and that the history has these rounds; return their experiments."""
    labels, n_broken = list[Label](), 0
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        if not path.exists():  # a running shuffler has delivered it
            continue
        view = folders.open_file_view(checkup, "rounds", path, ROUND_DATABASE)
        label = _read_round_label_and_close(checkup, path, view) if view else None
        labels += [label] if label else []
        n_broken += label is None
    if not n_broken:
        checkup.ok("rounds", f"open rounds: {len(labels):,}; their databases are whole")
    # A round is in the history before it has a database.
    if history := folders.open_file_view(checkup, "history", folder / HISTORY_FILE, HISTORY_DATABASE):
        with closing(history):
            disagreements = describe_unknown_rounds(history, labels)
        checkup.add_all(Level.FAIL, "history", disagreements, "{}", _ROLLBACK_REMEDY)
        if not disagreements:
            version = HISTORY_DATABASE.version
            checkup.ok("history", f"{HISTORY_FILE} knows every round that is open, schema {version}")
    return sorted(label.round.experiment for label in labels)


def _read_round_label_and_close(checkup: Checkup, path: Path, view: SqliteDatabase) -> Label | None:
    """Read the label of a round's file and close it; None, and a finding, if it is damaged or has none."""
    with closing(view), view.driver() as db:
        try:
            labelled = read_label(db)
        except (sqlite3.Error, msgspec.DecodeError, TypeError):
            checkup.fail("rounds", f"{folders.display_name(path)} is damaged", REPAIR)
            return None
    if labelled is None:
        checkup.warn("rounds", f"{folders.display_name(path)} is of no round", "nothing: the next start deletes it")
        return None
    return labelled[0]


def _examine_spent(checkup: Checkup, folder: Path, tokens: TokenSettings) -> SpentFindings | None:
    """Check the file of tokens spent in earlier rounds; None without it, or if it cannot be read."""
    path = folder / TOKENS_FILE
    if not path.exists():
        if tokens.required:
            remedy = "nothing, if the shuffler never started with tokens; else put it back"
            checkup.warn("spent tokens", f"there is no {TOKENS_FILE}: earlier tokens would count again", remedy)
        return None
    view = folders.open_file_view(checkup, "spent tokens", path, TOKENS_DATABASE)
    if view is None:
        return None
    with closing(view):
        findings = examine_spent(view)
    for disagreement in findings.disagreements:
        remedy = "put the file back; else start the issuer on an empty folder, which makes new keys"
        checkup.fail("spent tokens", f"{TOKENS_FILE}: {disagreement}", remedy)
    if not findings.disagreements:
        checkup.ok("spent tokens", f"{TOKENS_FILE} is whole, schema {findings.database.version}")
    return findings


def _examine_pool(checkup: Checkup, settings: ShufflerSettings, store_key: bytes | None) -> frozenset[bytes] | None:
    """Check the database that replicas of a shuffler share; return the server keys that they have pinned."""
    from privateer_shuffler.pool.shared_store import SHUFFLER, SharedStore

    database = folders.open_read_only(checkup, "database", settings.database, SHUFFLER, "PRIVATEER_DATABASE")
    if database is None:
        return None
    with closing(database):
        if store_key is None:
            return None
        try:
            store = SharedStore(database, StoreKey(store_key), with_tokens=False)
            findings, server_keys = store.examine(), store.server_keys()
        except UNREADABLE as error:
            checkup.refuse_unreadable("rounds", "a round in the database cannot be read", error, REPAIR)
            return None
    for disagreement in findings.disagreements:
        checkup.fail("rounds", disagreement, _ROLLBACK_REMEDY)
    if not findings.disagreements:
        checkup.ok("rounds", "the history knows every round that is open, and their secrets decrypt")
    return server_keys


def _check_answers(
    checkup: Checkup, settings: ShufflerSettings, is_in_use: bool | None, key: Ed25519PrivateKey | None
) -> None:
    """Check that the shuffler answers with this folder's key, and that its server's private listener answers."""
    listeners = Listeners.from_settings(settings)
    is_answering = listeners.check(checkup, is_in_use)
    if is_answering and key:
        shown_keys = fetch_listed_keys(listeners.public)
        if shown_keys and shown_keys != [public_hex(key)]:
            detail = f"the shuffler at {listeners.public} signs with another key than that of this folder"
            checkup.fail("answers", detail, NAME_REMEDY)
    url = settings.server_url
    health, metrics = fetch_or_none(f"{url}/healthz"), fetch_or_none(f"{url}/metrics")
    if health is None:
        level = Level.FAIL if is_answering else Level.WARN
        remedy = "start it, or correct PRIVATEER_SERVER_URL"
        checkup.add_all(level, "its server", [url], "no server answers at {}", remedy)
    elif metrics is None or not metrics.is_success:
        detail = f"what answers at {url} is not a server's private listener, which takes batches"
        checkup.fail("its server", detail, _SERVER_URL_REMEDY)
    else:
        checkup.ok("its server", f"the server's private listener answers at {url}")
        check_shown_clock(checkup, metrics.text, url)


def examine_issuer(place: IssuerPlace) -> Checkup:
    """Check an issuer's folder and listeners."""
    checkup = Checkup("issuer")
    if not folders.check_data(checkup, place.data):
        return checkup
    is_in_use = is_open_elsewhere(place.data / ISSUER_FILE)
    checkup.repeat(lambda attempt: _examine_keys(attempt, place), is_final=is_in_use is False)
    if place.secrets and place.secrets.is_file():
        folders.check_secret(checkup, place.secrets)
    elif place.secrets:
        detail = f"PRIVATEER_ATTESTATION_SECRETS names {place.secrets.name}, which does not exist"
        checkup.fail("permissions", detail, "put the file back, or correct the setting")
    folders.check_writable(checkup, place.data)
    folders.check_clock(checkup, place.data)
    folders.check_disk(checkup, [place.data])
    if place.listeners and place.listeners.check(checkup, is_in_use):
        url, path = place.listeners.public, place.public_keys_file
        response = fetch_or_none(f"{url}/token-keys")
        if response is not None and response.is_success and path.exists() and response.content != path.read_bytes():
            checkup.fail("answers", f"the issuer at {url} shows other keys than {path.name}", NAME_REMEDY)
    return checkup


def _examine_keys(checkup: Checkup, place: IssuerPlace) -> IssuerFindings | None:
    """Check that experiments have valid keys, that expired keys are erased, and the file of public keys."""
    view = folders.open_file_view(checkup, "database", place.data / ISSUER_FILE, DATABASE)
    if view is None:
        return None
    with closing(view):
        findings = examine(view)
    checkup.ok("database", f"{ISSUER_FILE} is whole, schema {findings.database.version}")
    n_checks_before, now = len(checkup.checks), time.time()
    detail = "tokens of {} are counted, and it has no key"
    checkup.add_all(Level.WARN, "keys", findings.without_key, detail, _ISSUER)
    detail = "the newest key of {} has expired: no token of it counts"
    checkup.add_all(Level.FAIL, "keys", findings.list_expired(now), detail, _ISSUER)
    detail = "the key of {} has lived for half of its time, and has no successor"
    checkup.add_all(Level.WARN, "keys", findings.list_due(now), detail, _ISSUER)
    if n_unerased := findings.count_unerased(now):
        checkup.warn("keys", f"private halves of {n_unerased:,} expired keys are not erased", _ISSUER)
    if not findings.keys:
        checkup.warn("keys", "there is no key", "nothing, if the issuer never started; else see PRIVATEER_EXPERIMENTS")
    elif len(checkup.checks) == n_checks_before:
        max_age = max((now - key.not_before) / _DAY for key in findings.newest_keys.values())
        days_left = min((key.not_after - now) / _DAY for key in findings.newest_keys.values())
        ages = f"{max_age:.0f} days old at most, {days_left:.0f} days left"
        checkup.ok("keys", f"keys of {len(findings.keys):,} experiments: {ages}")
    try:
        directory = Directory.decode(place.public_keys_file.read_bytes())
        shown_keys = {(name, key.id) for name in directory.experiments for key in directory.keys(name)}
    except (OSError, Malformed):
        shown_keys = set()
    if shown_keys and shown_keys <= findings.ids:
        checkup.ok("keys", f"{place.public_keys_file.name} shows public halves of these keys")
    else:
        detail = f"{place.public_keys_file.name} does not show the keys of this folder"
        checkup.fail("keys", detail, "restart the issuer, which writes the file, or correct PRIVATEER_PUBLIC_KEY_FILE")
    return findings
