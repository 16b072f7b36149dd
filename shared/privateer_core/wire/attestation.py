"""Attestations that an application's backend signs for its devices, so that an issuer gives each its share of tokens.

The text is ``pseudonym.expires.mac``. The mac is HMAC-SHA256, hexadecimal, of the lines ``privateer/attestation/1``,
experiment, pseudonym and time of expiry. A backend needs nothing of Privateer's to make it.
"""

import hashlib
import hmac
import re
from typing import Final

from privateer_core.errors import AttestationRefused, InputError

HEADER: Final = "privateer-attestation"
LIFE_MAX: Final = 86_400
"""Seconds that an attestation may be valid for, at most."""
PSEUDONYM: Final = r"[A-Za-z0-9_-]{1,64}"
FORM: Final = rf"({PSEUDONYM})\.([0-9]{{1,12}})\.([0-9a-f]{{64}})"
_FORM: Final = re.compile(FORM)
_TAG: Final = "privateer/attestation/1"


def attest(secret: bytes, experiment: str, pseudonym: str, expires: int) -> str:
    """Sign that a device, known by a pseudonym, may have its share of an experiment's tokens.

    secret: what backend and issuer share, 32 random bytes or more.
    experiment: name of the experiment.
    pseudonym: the same for a device each time, and of no meaning to others: letters, digits, ``-`` and ``_``, 64 at
        most.
    expires: when it ends, in seconds since 1970: a day ahead at most.
    """
    if not re.fullmatch(PSEUDONYM, pseudonym):
        raise InputError(
            "has other characters, or too many", field="pseudonym", remedy="use up to 64 of A-Z a-z 0-9 - _"
        )
    return f"{pseudonym}.{expires}.{_mac(secret, experiment, pseudonym, str(expires))}"


def check_attestation(text: str, experiment: str, secrets: list[bytes], now: float) -> str:
    """Return the pseudonym in an attestation."""
    found = _FORM.fullmatch(text)
    if found is None or not 0 <= int(found[2]) - now <= LIFE_MAX or not _is_signed(found, experiment, secrets):
        raise AttestationRefused(
            "not signed for this experiment by the application's backend, or expired",
            field=HEADER,
            remedy="ask the backend for a new one",
        )
    return found[1]


def _is_signed(found: re.Match[str], experiment: str, secrets: list[bytes]) -> bool:
    macs = [_mac(secret, experiment, found[1], found[2]) for secret in secrets]
    return any([hmac.compare_digest(mac, found[3]) for mac in macs])  # noqa: C419 - all of them are compared


def _mac(secret: bytes, experiment: str, pseudonym: str, expires: str) -> str:
    return hmac.new(secret, "\n".join((_TAG, experiment, pseudonym, expires)).encode(), hashlib.sha256).hexdigest()
