"""Files of admin tokens: whether every line is one, who may change them, and which expire soon."""

import time
from pathlib import Path
from typing import Final

from privateer_core.errors import SpecError
from privateer_lab.doctor.files import is_open_to_writers
from privateer_lab.doctor.findings import Findings
from privateer_server.admin_tokens import AdminToken, TokenFile, shown_time

SOON_DAYS: Final = 14
_DAY: Final = 86_400
_CHECK: Final = "tokens"


def check_admin_tokens(found: Findings, path: Path) -> None:
    """Check the file of a server's admin tokens."""
    try:
        tokens = TokenFile(path).check()
    except SpecError as error:
        found.fail(_CHECK, error.detail, error.remedy or "correct it")
        return
    if is_open_to_writers(path):
        found.fail(_CHECK, f"other users may change {path.name}", f"chmod go-w {path.parent} and {path.name}")
    now = time.time()
    for one in tokens:
        _check_expiry(found, one, now)
    if all((one.expires or 0) - now >= SOON_DAYS * _DAY for one in tokens):
        found.ok(_CHECK, f"{path.name} has {len(tokens):,} admin tokens, and none expires within {SOON_DAYS} days")


def _check_expiry(found: Findings, token: AdminToken, now: float) -> None:
    at = token.expires or 0
    if at <= now:
        found.warn(_CHECK, f"the admin token {token.shown} has expired", "remove its line")
    elif at - now < SOON_DAYS * _DAY:
        detail = f"the admin token {token.shown} expires at {shown_time(at)}"
        found.warn(_CHECK, detail, f"add another beside it (privateer token new {token.name}), and hand that out")
