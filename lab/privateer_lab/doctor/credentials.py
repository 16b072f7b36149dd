"""Files of keys, whether their halves fit each other; and tokens, of admins and of reports."""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from privateer_core.errors import Malformed, SpecError
from privateer_core.serving.settings import TokenSettings
from privateer_core.serving.store.store_key import read_store_key
from privateer_core.wire.keys import (
    UNREADABLE_KEY,
    public_hex,
    public_key_files,
    read_public_keys,
    read_signing_key,
    signing_key_id,
)
from privateer_core.wire.token_keys import Directory, TokenKey
from privateer_lab.doctor.checkup import Checkup, Level
from privateer_lab.doctor.listeners import get, page
from privateer_lab.doctor.stored_data import check_secret, is_open_to_writers
from privateer_server.admin_tokens import AdminToken, TokenFile, shown_time

SOON_DAYS: Final = 14
_DAY: Final = 86_400
_CHECK, _TOKENS, _IDENTITY = "upload keys", "tokens", "identity"
_HERE: Final = ("127.", "localhost", "[::1]")
_GET: Final = "start the issuer, and see that its public keys come to where PRIVATEER_TOKEN_KEYS says"
_ONE: Final = "an experiment has one issuer: take it off the other one's PRIVATEER_EXPERIMENTS"
_LOST: Final = (
    "put it back, or name it by PRIVATEER_IDENTITY as at the start; a start without it makes another key, and devices "
    "and shufflers refuse the server"
)


def check_upload_tokens(found: Checkup, tokens: TokenSettings, host: str, experiments: Sequence[str]) -> None:
    """Check what a service needs to admit reports by their tokens.

    host: where its public listener is.
    experiments: those with an open round whose reports come here.
    """
    if not tokens.keys:
        return
    known, now, before = _known(found, tokens.keys), time.time(), len(found.all)
    valid = {name: key for name, keys in known.items() if (key := next((k for k in keys if k.is_valid(now)), None))}
    if tokens.required:
        _check_required(found, tokens, host, [name for name in experiments if name not in valid], valid)
    for name, key in sorted(valid.items()):
        if key.not_after - now < SOON_DAYS * _DAY:
            detail = f"the newest token key of {name} expires within {SOON_DAYS} days"
            found.warn(_CHECK, detail, "see the issuer's log: its successor is due")
    if len(found.all) == before:
        need = "reports need upload tokens" if tokens.required else "token keys are shown to devices"
        found.ok(_CHECK, f"{need}; experiments with a valid key: {len(valid):,}")


def _check_required(
    found: Checkup, tokens: TokenSettings, host: str, lacking: list[str], valid: Mapping[str, TokenKey]
) -> None:
    if not valid:
        found.fail(_CHECK, "reports need upload tokens, and no issuer's key is valid", _GET)
    else:
        found.each(Level.FAIL, _CHECK, lacking, "{} has no valid token key: no report to it counts", _GET)
    if all(name.startswith(_HERE) for name in tokens.origins) and not host.startswith(("127.", "localhost", "::1")):
        detail = f"devices elsewhere know the service by another name than {tokens.origins[0]}"
        found.warn(_CHECK, detail, "set PRIVATEER_ORIGIN to the name that they use")


def _known(found: Checkup, source: str) -> dict[str, list[TokenKey]]:
    """Return the keys of issuers by experiment, the newest first."""
    known, files = dict[str, list[TokenKey]](), dict[str, str]()
    for name, body in _documents(found, source):
        try:
            directory = Directory.decode(body)
            known |= {one: directory.keys(one) for one in directory.experiments}
        except Malformed:
            found.fail(_CHECK, f"{name} shows no token keys", _GET)
            continue
        for one in directory.experiments:
            if files.setdefault(one, name) != name:
                found.fail(_CHECK, f"{files[one]} and {name} both have keys of {one}: the service does not start", _ONE)
    return known


def _documents(found: Checkup, source: str) -> Iterator[tuple[str, bytes]]:
    if "://" in source:
        answer = get(f"{source.rstrip('/')}/token-keys")
        if answer is None or not answer.is_success:
            found.warn(_CHECK, "the issuer at PRIVATEER_TOKEN_KEYS does not answer", "start it, or correct the address")
        else:
            yield "the issuer", answer.content
        return
    path = Path(source)
    for file in sorted(path.glob("*.json")) if path.is_dir() else [path]:
        try:
            yield file.name, file.read_bytes()
        except OSError:
            found.fail(_CHECK, f"{file.name} cannot be read", _GET)


def check_admin_tokens(found: Checkup, path: Path) -> None:
    """Check the file of a server's admin tokens."""
    try:
        tokens = TokenFile(path).check()
    except SpecError as error:
        found.refuse(_TOKENS, error)
        return
    if is_open_to_writers(path):
        found.fail(_TOKENS, f"other users may change {path.name}", f"chmod go-w {path.parent} and {path.name}")
    now = time.time()
    for one in tokens:
        _check_expiry(found, one, now)
    if all((one.expires or 0) - now >= SOON_DAYS * _DAY for one in tokens):
        found.ok(_TOKENS, f"{path.name} has {len(tokens):,} admin tokens, and none expires within {SOON_DAYS} days")


def _check_expiry(found: Checkup, token: AdminToken, now: float) -> None:
    at = token.expires or 0
    if at <= now:
        found.warn(_TOKENS, f"the admin token {token.shown} has expired", "remove its line")
    elif at - now < SOON_DAYS * _DAY:
        detail = f"the admin token {token.shown} expires at {shown_time(at)}"
        found.warn(_TOKENS, detail, f"add another beside it (privateer token new {token.name}), and hand that out")


def signing_key(found: Checkup, path: Path, setting: str) -> Ed25519PrivateKey | None:
    """Return the private key in a file; None, and a finding, if there is none."""
    if not path.exists():
        found.warn("key", f"there is no {path.name}", "nothing, if the service never started; else restore the file")
        return None
    try:
        return read_signing_key(path, setting)
    except SpecError as error:
        found.refuse("key", error)
        return None


def store_key(found: Checkup, path: Path | None) -> bytes | None:
    """Return the key that encrypts what replicas keep in a database; None, and a finding, if its file has none."""
    try:
        key = read_store_key(path)
    except SpecError:
        remedy = "put the file back that all replicas have; without it none starts"
        found.fail("round keys", "PRIVATEER_STORE_KEY_FILE names no file of 32 bytes", remedy)
        return None
    if path and path.stat().st_mode & 0o077:
        found.warn("round keys", "other users may read PRIVATEER_STORE_KEY_FILE", "chmod 600, or a secret mount")
    else:
        found.ok("round keys", "the file that encrypts the keys of open rounds is there, for its owner alone")
    return key


def check_public_half(found: Checkup, key: Ed25519PrivateKey, public: Path) -> None:
    """Check that the public half of a key is where others look for it."""
    text = ""
    with suppress(OSError, UnicodeDecodeError):
        text = public.read_text("ascii").strip()
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


def check_identity_key(found: Checkup, path: Path, folder: Path | None, published: int) -> str | None:
    """Check the file of a server's key, and return the public half, hexadecimal; None if there is none.

    folder: the data folder, whose files are looked at anyway; None: there is none.
    published: how many publications the log has that the key signs.
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
        found.fail(_IDENTITY, error.detail, error.remedy if error.remedy == UNREADABLE_KEY else _LOST)
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
        remedy = "name the file that the server has (PRIVATEER_IDENTITY); another key: docs/operations/keys.md"
        found.fail(_IDENTITY, f"the server at {url} signs with another key than this file's", remedy)
