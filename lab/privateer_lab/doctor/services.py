"""What the doctor looks at in all services here, above all at shuffler and issuer, and what it says of that.

The stores find out themselves whether they are whole and agree. How many reports a shuffler holds, and who had tokens
of an issuer, stays unsaid.
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
from privateer_core.serving.store.copies import is_held
from privateer_core.serving.store.sqlite import SqliteDatabase
from privateer_core.serving.store.store_key import StoreKey
from privateer_core.wire.keys import public_hex, public_key_files, read_signing_key, signing_key_id
from privateer_core.wire.token_keys import Directory
from privateer_issuer.store import DATABASE, IssuerFindings, examine
from privateer_issuer.store import FILE as ISSUER_FILE
from privateer_lab.doctor import credentials
from privateer_lab.doctor.checkup import Check, Checkup, Level
from privateer_lab.doctor.listeners import NAME_IT, Listeners, check_shown_clock, get, listed_keys, page
from privateer_lab.doctor.places import IssuerPlace, ServicePlaces
from privateer_lab.doctor.server import examine_server
from privateer_lab.doctor.stored_data import (
    UNREADABLE,
    check_clock,
    check_disk,
    check_secret,
    check_writable,
    connected,
    has_data,
    shown,
    viewed,
)
from privateer_server.publication_log import IDENTITY_FILE
from privateer_server.settings import ServerSettings
from privateer_shuffler.pool.round import Label
from privateer_shuffler.pool.round_file import REPAIR, ROUND_DATABASE, SUFFIX, read_label
from privateer_shuffler.pool.spent_tokens import TOKENS_DATABASE, TOKENS_FILE, SpentFindings
from privateer_shuffler.pool.spent_tokens import examine as examine_spent
from privateer_shuffler.pool.store import HISTORY_DATABASE, HISTORY_FILE, unknown_rounds
from privateer_shuffler.resources import KEY_FILE, PIN_FILE, pinned_keys
from privateer_shuffler.settings import ShufflerSettings

_NEXT: Final = 3
"""A shuffler's next round reserves its places, and a round that ends is overwritten by way of its log."""
_DAY: Final = 86_400
_START: Final = "start the issuer, which does it; if it runs, see its disk and its log"
_OTHER: Final = (
    "correct PRIVATEER_SERVER_URL: the private port is 8002 unless it was changed; if it is right, another process has "
    "the server's port: find out which"
)
_CLAIM: Final = (
    "put the earlier shuffler.key back; else trust the new one, and release the claim (docs/operations/keys.md)"
)
_TRUST: Final = "give its public key file to the server's operator, for PRIVATEER_SHUFFLER_KEYS"
_NEW_KEY: Final = (
    "put the server's identity.key back; if its operator has replaced it, set PRIVATEER_SERVER_KEY "
    "(docs/operations/keys.md)"
)
_BACKWARDS: Final = "never put earlier files back; move the round's database away and lose what it holds"


def examine_all(places: ServicePlaces) -> list[Check]:
    """Look at all services that are here, and at the key of who sends reports."""
    findings = list[Check]()
    if places.server:
        findings += examine_server(places.server).all
    if places.shuffler:
        findings += examine_shuffler(places.shuffler, places.server).all
    if places.issuer:
        findings += examine_issuer(places.issuer).all
    if places.sender:
        found, (private, public) = Checkup("sender"), places.sender
        check_secret(found, private)
        if key := credentials.signing_key(found, private, "--data"):
            credentials.check_public_half(found, key, public)
        findings += found.all
    return findings


def examine_shuffler(settings: ShufflerSettings, server: ServerSettings | None = None) -> Checkup:
    """Look at a shuffler's data, its keys and its listeners.

    server: its server's settings, if that is here.
    """
    found, folder = Checkup("shuffler"), None if settings.database else settings.data
    if folder and not has_data(found, folder):
        return found
    field = "PRIVATEER_DATA" if folder else "PRIVATEER_SIGNING_KEY"
    key = credentials.signing_key(found, settings.signing_key or settings.data / KEY_FILE, field)
    if key:
        if settings.public_key_file:
            credentials.check_public_half(found, key, settings.public_key_file)
        _check_trust(found, key, server.shuffler_keys if server else None)
    credentials.check_trusted(found, "senders", settings.sender_keys)
    held = is_held(folder / HISTORY_FILE) if folder else None
    pin, names = None, list[str]()
    if folder:
        check_writable(found, folder)
        pin = _read_pin(found, folder / PIN_FILE)
        names = found.settled(lambda seen: _examine_rounds(seen, folder), once=held is False)
        found.settled(lambda seen: _examine_spent(seen, folder, settings.tokens), once=held is False)
        credentials.check_upload_tokens(found, settings.tokens, settings.host, names)
        check_clock(found, folder)
        held_bytes = sum(path.stat().st_size for path in folder.glob(f"*{SUFFIX}") if path.exists())
        check_disk(found, [folder], _NEXT * held_bytes)
    else:
        store_key = credentials.store_key(found, settings.store_key_file)
        pin = found.settled(lambda seen: _examine_pool(seen, settings, store_key), once=False)
    _check_answers(found, settings, held, key)
    _check_server_key(found, settings.server_key or pin or frozenset(), settings.server_url, server)
    if key:
        _check_claims(found, names, settings.server_url, signing_key_id(key.public_key()))
    return found


def _check_claims(found: Checkup, names: list[str], url: str, own: str) -> None:
    """Check that no other key has the claim of an experiment whose reports are held: nobody would take them."""
    holders = {name: page(f"{url}/experiments/{name}").get("shuffler") for name in names}
    others = [name for name, shuffler in holders.items() if shuffler not in (None, own)]
    detail = "another shuffler, or this one with an earlier key, has the claim of {}: the server refuses its batch"
    found.each(Level.FAIL, "trust", others, detail, _CLAIM)


def _read_pin(found: Checkup, path: Path) -> frozenset[bytes] | None:
    """Return the keys of the server that a shuffler has met."""
    try:
        return pinned_keys(path)
    except SpecError as error:
        found.refuse("server key", error)
        return None


def _check_server_key(found: Checkup, known: frozenset[bytes], url: str, server: ServerSettings | None) -> None:
    """Compare the key of the server that answers, or else of the one that is here, with what the shuffler knows."""
    key = page(f"{url}/log/key").get("key")
    if key is None and server:
        with suppress(SpecError, OSError):
            own = read_signing_key(server.identity or server.data / IDENTITY_FILE, "PRIVATEER_IDENTITY")
            key = public_hex(own)
    if not known or key is None:
        return
    if key in {one.hex() for one in known}:
        found.ok("server key", "the server has the key that this shuffler knows")
    else:
        detail = "the server signs with another key than this shuffler knows: it follows no new round"
        found.fail("server key", detail, _NEW_KEY)


def _check_trust(found: Checkup, key: Ed25519PrivateKey, trusted: Sequence[Path] | None) -> None:
    """Check that the server knows the shuffler's key."""
    if trusted is None:
        return
    if signing_key_id(key.public_key()) in credentials.ids_of(public_key_files(trusted)):
        found.ok("trust", "the server trusts this shuffler's key")
    else:
        found.fail("trust", "the server does not trust this shuffler's key", _TRUST)


def _examine_rounds(found: Checkup, folder: Path) -> list[str]:
    """Check the files of rounds, and that the history knows what they are of; return their experiments."""
    labels, broken = list[Label](), 0
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        if not path.exists():  # a running shuffler has delivered it
            continue
        view = viewed(found, "rounds", path, ROUND_DATABASE)
        label = _label(found, path, view) if view else None
        labels += [label] if label else []
        broken += label is None
    if not broken:
        found.ok("rounds", f"open rounds: {len(labels):,}; their databases are whole")
    # A round is in the history before it has a database.
    if history := viewed(found, "history", folder / HISTORY_FILE, HISTORY_DATABASE):
        with closing(history):
            wrong = unknown_rounds(history, labels)
        found.each(Level.FAIL, "history", wrong, "{}", _BACKWARDS)
        if not wrong:
            version = HISTORY_DATABASE.version
            found.ok("history", f"{HISTORY_FILE} knows every round that is open, schema {version}")
    return sorted(label.round.experiment for label in labels)


def _label(found: Checkup, path: Path, view: SqliteDatabase) -> Label | None:
    with closing(view), view.driver() as db:
        try:
            known = read_label(db)
        except (sqlite3.Error, msgspec.DecodeError, TypeError):
            found.fail("rounds", f"{shown(path)} is damaged", REPAIR)
            return None
    if known is None:
        found.warn("rounds", f"{shown(path)} is of no round", "nothing: the next start deletes it")
        return None
    return known[0]


def _examine_spent(found: Checkup, folder: Path, tokens: TokenSettings) -> SpentFindings | None:
    """Check the file of tokens that were spent in earlier rounds, which is there once reports come with tokens."""
    path = folder / TOKENS_FILE
    if not path.exists():
        if tokens.required:
            remedy = "nothing, if the shuffler never started with tokens; else put it back"
            found.warn("spent tokens", f"there is no {TOKENS_FILE}: earlier tokens would count again", remedy)
        return None
    view = viewed(found, "spent tokens", path, TOKENS_DATABASE)
    if view is None:
        return None
    with closing(view):
        findings = examine_spent(view)
    for wrong in findings.disagreements:
        remedy = "put the file back; else start the issuer on an empty folder, which makes new keys"
        found.fail("spent tokens", f"{TOKENS_FILE}: {wrong}", remedy)
    if not findings.disagreements:
        found.ok("spent tokens", f"{TOKENS_FILE} is whole, schema {findings.database.version}")
    return findings


def _examine_pool(found: Checkup, settings: ShufflerSettings, store_key: bytes | None) -> frozenset[bytes] | None:
    """Look at the database that replicas of a shuffler share, and return the keys of the server that they have met."""
    from privateer_shuffler.pool.shared_store import SHUFFLER, SharedStore

    database = connected(found, "database", settings.database, SHUFFLER, "PRIVATEER_DATABASE")
    if database is None:
        return None
    with closing(database):
        if store_key is None:
            return None
        try:
            store = SharedStore(database, StoreKey(store_key), with_tokens=False)
            findings, known = store.examine(), store.server_keys()
        except UNREADABLE as error:
            found.refuse_unreadable("rounds", "a round in the database cannot be read", error, REPAIR)
            return None
    for wrong in findings.disagreements:
        found.fail("rounds", wrong, _BACKWARDS)
    if not findings.disagreements:
        found.ok("rounds", "the history knows every round that is open, and their secrets decrypt")
    return known


def _check_answers(
    found: Checkup, settings: ShufflerSettings, held: bool | None, key: Ed25519PrivateKey | None
) -> None:
    listeners = Listeners.of(settings)
    answers = listeners.check(found, held)
    if answers and key:
        listed = listed_keys(listeners.public)
        if listed and listed != [public_hex(key)]:
            detail = f"the shuffler at {listeners.public} signs with another key than that of this folder"
            found.fail("answers", detail, NAME_IT)
    url = settings.server_url
    health, metrics = get(f"{url}/healthz"), get(f"{url}/metrics")
    if health is None:
        level = Level.FAIL if answers else Level.WARN
        found.each(level, "its server", [url], "no server answers at {}", "start it, or correct PRIVATEER_SERVER_URL")
    elif metrics is None or not metrics.is_success:
        detail = f"what answers at {url} is not a server's private listener, which takes batches"
        found.fail("its server", detail, _OTHER)
    else:
        found.ok("its server", f"the server's private listener answers at {url}")
        check_shown_clock(found, metrics.text, url)


def examine_issuer(place: IssuerPlace) -> Checkup:
    """Look at an issuer's folder and listeners."""
    found = Checkup("issuer")
    if not has_data(found, place.data):
        return found
    held = is_held(place.data / ISSUER_FILE)
    found.settled(lambda seen: _examine_keys(seen, place), once=held is False)
    if place.secrets and place.secrets.is_file():
        check_secret(found, place.secrets)
    elif place.secrets:
        found.fail("permissions", f"there is no {place.secrets.name}", "correct PRIVATEER_ATTESTATION_SECRETS")
    check_writable(found, place.data)
    check_clock(found, place.data)
    check_disk(found, [place.data])
    if place.listeners and place.listeners.check(found, held):
        _check_shown(found, place.listeners.public, place.shown)
    return found


def _check_shown(found: Checkup, url: str, shown: Path) -> None:
    """Compare the keys that the issuer shows with those that the services read."""
    answer = get(f"{url}/token-keys")
    if answer is not None and answer.is_success and shown.exists() and answer.content != shown.read_bytes():
        found.fail("answers", f"the issuer at {url} shows other keys than {shown.name}", NAME_IT)


def _examine_keys(found: Checkup, place: IssuerPlace) -> IssuerFindings | None:
    """Check that each experiment has a key that lasts, that no expired key could still sign, and what others see."""
    view = viewed(found, "database", place.data / ISSUER_FILE, DATABASE)
    if view is None:
        return None
    with closing(view):
        own = examine(view)
    found.ok("database", f"{ISSUER_FILE} is whole, schema {own.database.version}")
    before, now = len(found.all), time.time()
    detail = "tokens of {} are counted, and it has no key"
    found.each(Level.WARN, "keys", own.without_key, detail, _START)
    detail = "the newest key of {} has expired: no token of it counts"
    found.each(Level.FAIL, "keys", own.expired(now), detail, _START)
    detail = "the key of {} has lived for half of its time, and has no successor"
    found.each(Level.WARN, "keys", own.due(now), detail, _START)
    if left := own.unerased(now):
        found.warn("keys", f"private halves of {left:,} expired keys are not erased", _START)
    if not own.keys:
        found.warn("keys", "there is no key", "nothing, if the issuer never started; else see PRIVATEER_EXPERIMENTS")
    elif len(found.all) == before:
        oldest = max((now - key.not_before) / _DAY for key in own.newest.values())
        first = min((key.not_after - now) / _DAY for key in own.newest.values())
        found.ok("keys", f"keys of {len(own.keys):,} experiments: {oldest:.0f} days old at most, {first:.0f} days left")
    try:
        directory = Directory.decode(place.shown.read_bytes())
        public = {(name, key.id) for name in directory.experiments for key in directory.keys(name)}
    except (OSError, Malformed):
        public = set()
    if public and public <= own.ids:
        found.ok("keys", f"{place.shown.name} shows public halves of these keys")
    else:
        detail = f"{place.shown.name} does not show the keys of this folder"
        found.fail("keys", detail, "restart the issuer, which writes the file, or correct PRIVATEER_PUBLIC_KEY_FILE")
    return own
