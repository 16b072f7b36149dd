"""Checks of key files, and of admin and upload tokens."""

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from privateer_core.errors import Malformed, SpecError
from privateer_core.serving.settings import TokenSettings
from privateer_core.serving.store.store_key import read_store_key
from privateer_core.wire import keys as key_files
from privateer_core.wire.token_keys import Directory, TokenKey
from privateer_lab.doctor.checkup import Checkup, Level, check_secret, is_open_to_writers
from privateer_lab.doctor.places import fetch_object, fetch_or_none
from privateer_server.admin_tokens import TokenFile, format_time

SOON_DAYS: Final = 14
_DAY: Final = 86_400
_CHECK, _TOKENS, _SIGNER = "upload keys", "tokens", "identity"
_LOOPBACK: Final = ("127.", "localhost", "[::1]")
_ISSUER: Final = "start the issuer, and make sure that PRIVATEER_TOKEN_KEYS names the place of its public keys"
_ONE_ISSUER_REMEDY: Final = "an experiment has one issuer: take it off the other one's PRIVATEER_EXPERIMENTS"
_KEY_REMEDY: Final = (
    "put it back, or name it by PRIVATEER_PUBLICATION_KEY as at the start; a start without it makes another key, and "
    "devices and shufflers refuse the server"
)


def check_token_keys(
    checkup: Checkup, tokens: TokenSettings, listen_host: str, open_experiments: Sequence[str]
) -> None:
    """Check the token keys with which a service, listening there, admits reports to open experiments."""
    if not tokens.keys:
        return
    all_keys, now, n_checks_before = _read_token_keys(checkup, tokens.keys), time.time(), len(checkup.checks)
    valid = {name: key for name, keys in all_keys.items() if (key := next((k for k in keys if k.is_valid(now)), None))}
    if tokens.required:
        if valid:
            lacking = [name for name in open_experiments if name not in valid]
            checkup.add_all(Level.FAIL, _CHECK, lacking, "{} has no valid token key: no report to it counts", _ISSUER)
        else:
            checkup.fail(_CHECK, "reports need upload tokens, and no issuer's key is valid", _ISSUER)
        is_local = listen_host.startswith(("127.", "localhost", "::1"))
        if not is_local and all(name.startswith(_LOOPBACK) for name in tokens.origins):
            detail = f"devices elsewhere know the service by another name than {tokens.origins[0]}"
            checkup.warn(_CHECK, detail, "set PRIVATEER_TOKEN_ORIGIN to the name that they use")
    for name, key in sorted(valid.items()):
        if key.not_after - now < SOON_DAYS * _DAY:
            detail = f"the newest token key of {name} expires within {SOON_DAYS} days"
            checkup.warn(_CHECK, detail, "see the issuer's log: its successor is due")
    if len(checkup.checks) == n_checks_before:
        description = "reports need upload tokens" if tokens.required else "token keys are shown to devices"
        checkup.ok(_CHECK, f"{description}; experiments with a valid key: {len(valid):,}")


def _read_token_keys(checkup: Checkup, source: str) -> dict[str, list[TokenKey]]:
    """Read the issuers' keys by experiment, the newest first."""
    token_keys, file_names = dict[str, list[TokenKey]](), dict[str, str]()
    for name, body in _iterate_key_documents(checkup, source):
        try:
            directory = Directory.decode(body)
            token_keys |= {experiment: directory.keys(experiment) for experiment in directory.experiments}
        except Malformed:
            checkup.fail(_CHECK, f"{name} shows no token keys", _ISSUER)
            continue
        for experiment in directory.experiments:
            if (first_name := file_names.setdefault(experiment, name)) != name:
                detail = f"{first_name} and {name} both have keys of {experiment}: the service does not start"
                checkup.fail(_CHECK, detail, _ONE_ISSUER_REMEDY)
    return token_keys


def _iterate_key_documents(checkup: Checkup, source: str) -> Iterator[tuple[str, bytes]]:
    """Fetch the issuer's key document, or read the documents of a folder or file; add a finding for each failure."""
    if "://" in source:
        response = fetch_or_none(f"{source.rstrip('/')}/token-keys")
        if response is None or not response.is_success:
            detail = "the issuer at PRIVATEER_TOKEN_KEYS does not answer"
            checkup.warn(_CHECK, detail, "start it, or correct the address")
        else:
            yield "the issuer", response.content
        return
    path = Path(source)
    for file in sorted(path.glob("*.json")) if path.is_dir() else [path]:
        try:
            yield file.name, file.read_bytes()
        except OSError:
            checkup.fail(_CHECK, f"{file.name} cannot be read", _ISSUER)


def check_admin_tokens(checkup: Checkup, path: Path) -> None:
    """Check the file of a server's admin tokens."""
    try:
        tokens = TokenFile(path).check()
    except SpecError as error:
        checkup.refuse(_TOKENS, error)
        return
    if is_open_to_writers(path):
        checkup.fail(_TOKENS, f"other users may change {path.name}", f"chmod go-w {path.parent} and {path.name}")
    now, n_expiring = time.time(), 0
    for token, expiry in ((token, token.expires or 0) for token in tokens):
        n_expiring += expiry - now < SOON_DAYS * _DAY
        if expiry <= now:
            checkup.warn(_TOKENS, f"the admin token {token.log_name} has expired", "remove its line")
        elif expiry - now < SOON_DAYS * _DAY:
            detail = f"the admin token {token.log_name} expires at {format_time(expiry)}"
            remedy = f"add another beside it (privateer token new {token.name}), and hand that out"
            checkup.warn(_TOKENS, detail, remedy)
    if not n_expiring:
        checkup.ok(_TOKENS, f"{path.name} has {len(tokens):,} admin tokens, and none expires within {SOON_DAYS} days")


def find_signing_key(checkup: Checkup, path: Path, setting: str) -> Ed25519PrivateKey | None:
    """Read the private key in a file; return None, with a finding, if there is none."""
    if not path.exists():
        checkup.warn("key", f"there is no {path.name}", "none if the service never started; otherwise restore the file")
        return None
    try:
        return key_files.read_signing_key(path, setting)
    except SpecError as error:
        checkup.refuse("key", error)
        return None


def find_store_key(checkup: Checkup, path: Path | None) -> bytes | None:
    """Read the key by which replicas encrypt secrets; return None, with a finding, if the file has none."""
    try:
        key = read_store_key(path)
    except SpecError:
        remedy = "put the file back that all replicas have; without it none starts"
        checkup.fail("round keys", "PRIVATEER_STORE_KEY_FILE names no file of 32 bytes", remedy)
        return None
    if path and path.stat().st_mode & 0o077:
        checkup.warn("round keys", "other users may read PRIVATEER_STORE_KEY_FILE", "chmod 600, or a secret mount")
    else:
        checkup.ok("round keys", "the file that encrypts the keys of open rounds is there, for its owner alone")
    return key


def check_public_half(checkup: Checkup, key: Ed25519PrivateKey, public: Path) -> None:
    """Check that a file has the public half of a key."""
    text = ""
    with suppress(OSError, UnicodeDecodeError):
        text = public.read_text("ascii").strip()
    if text == key_files.public_hex(key):
        checkup.ok("key", f"the key is whole, and {public.name} is its public half")
    else:
        checkup.fail("key", f"{public.name} is not the public half of this key", "restart the service, which writes it")


def check_trusted(checkup: Checkup, check: str, places: Sequence[Path]) -> set[str]:
    """Check files of public keys that a service trusts, and return the ids of the keys."""
    files = list(key_files.public_key_files(places))
    trusted_ids = read_key_ids(files)
    if missing := [place for place in places if not place.exists()]:
        checkup.warn(check, f"there is no {missing[0].name}", "put the public keys there, or correct the setting")
    if exposed_files := [path for path in files if is_open_to_writers(path)]:
        remedy = f"chmod go-w {exposed_files[0].parent} and what is in it"
        checkup.fail(check, f"other users may change {exposed_files[0].name}", remedy)
    if broken_files := [path for path in files if not read_key_ids([path])]:
        checkup.fail(check, f"{broken_files[0].name} holds no public key", "copy it again, or remove it")
    if trusted_ids:
        checkup.ok(check, f"{len(trusted_ids)} public key{'s are' if len(trusted_ids) > 1 else ' is'} trusted")
    return trusted_ids


def read_key_ids(files: Iterable[Path]) -> set[str]:
    """Return the ids of the keys in files; skip files without a key."""
    ids = set[str]()
    for path in files:
        with suppress(OSError, ValueError):
            ids.update(map(key_files.signing_key_id, key_files.read_public_keys(path)))
    return ids


def check_identity_key(checkup: Checkup, path: Path, folder: Path | None, n_signed: int) -> str | None:
    """Check the key of a server whose log has ``n_signed`` publications; return its public half, or None."""
    if not path.exists():
        if n_signed:
            checkup.fail(_SIGNER, f"there is no {path.name}, and {n_signed:,} publications are in the log", _KEY_REMEDY)
        else:
            checkup.warn(_SIGNER, f"there is no {path.name}", "nothing, if the server never started; else put it back")
        return None
    if folder is None or folder not in path.parents:
        check_secret(checkup, path)
    try:
        return key_files.public_hex(key_files.read_signing_key(path, "PRIVATEER_PUBLICATION_KEY"))
    except SpecError as error:
        checkup.fail(
            _SIGNER, error.detail, error.remedy if error.remedy == key_files.UNREADABLE_KEY_REMEDY else _KEY_REMEDY
        )
        return None


def check_signer(checkup: Checkup, public: str | None, url: str, *, is_answering: bool) -> None:
    """Compare a public key with that of the server at an address; servers that share their data have one key."""
    if public is None:
        return
    shown_key = fetch_object(f"{url}/log/key").get("key") if is_answering else None
    if shown_key is None or shown_key == public:
        also = ", and the server that answers has the same" if shown_key else ""
        checkup.ok(_SIGNER, f"the key that signs publications is there{also}")
    else:
        remedy = "name the file that the server has (PRIVATEER_PUBLICATION_KEY); another key: docs/operations/keys.md"
        checkup.fail(_SIGNER, f"the server at {url} signs with another key than this file's", remedy)
