"""Tokens: those that admins show, and those that reports come with."""

import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from privateer_core.errors import Malformed, SpecError
from privateer_core.serving.settings import TokenSettings
from privateer_core.wire.tokens.token_keys import Directory, TokenKey
from privateer_lab.doctor.checks import Checkup
from privateer_lab.doctor.files import is_open_to_writers
from privateer_lab.doctor.listeners import get
from privateer_server.admin_tokens import AdminToken, TokenFile, shown_time

SOON_DAYS: Final = 14
_DAY: Final = 86_400
_CHECK: Final = "upload keys"
_HERE: Final = ("127.", "localhost", "[::1]")
_GET: Final = "start the issuer, and see that its public keys come to where PRIVATEER_TOKEN_KEYS says"
_ONE: Final = "an experiment has one issuer: take it off the other one's PRIVATEER_EXPERIMENTS"


def check_upload_tokens(found: Checkup, tokens: TokenSettings, host: str, experiments: Sequence[str]) -> None:
    """Check what a service needs to admit reports by their tokens.

    Parameters
    ----------
    host
        Where its public listener is.
    experiments
        Those with an open round whose reports come here.
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
    elif lacking:
        others = f", and so for {len(lacking) - 1:,} more" if len(lacking) > 1 else ""
        found.fail(_CHECK, f"{lacking[0]} has no valid token key: no report to it counts{others}", _GET)
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


_TOKENS: Final = "tokens"


def check_admin_tokens(found: Checkup, path: Path) -> None:
    """Check the file of a server's admin tokens."""
    try:
        tokens = TokenFile(path).check()
    except SpecError as error:
        found.fail(_TOKENS, error.detail, error.remedy or "correct it")
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
