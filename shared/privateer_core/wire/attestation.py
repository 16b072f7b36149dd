"""Attestations that an application's backend signs for its devices, so that an issuer gives each its share of tokens.

The text is ``pseudonym.expires.mac``. The mac is HMAC-SHA256, hexadecimal, of the lines ``privateer/attestation/1``,
experiment, pseudonym and time of expiry. A backend can compute it without Privateer's libraries.
"""

import hashlib
import hmac
import re
from typing import Final

from privateer_core.errors import AttestationRefused, InputError

HEADER: Final = "privateer-attestation"
LIFETIME_MAX: Final = 86_400
"""Longest validity of an attestation."""
PSEUDONYM_PATTERN: Final = r"[A-Za-z0-9_-]{1,64}"
ATTESTATION_PATTERN: Final = rf"({PSEUDONYM_PATTERN})\.([0-9]{{1,12}})\.([0-9a-f]{{64}})"
_REGEX: Final = re.compile(ATTESTATION_PATTERN)
_TAG: Final = "privateer/attestation/1"


def attest(secret: bytes, experiment: str, pseudonym: str, expires: int) -> str:
    """Sign that a device, known by a pseudonym, may have its share of tokens; refuse an invalid pseudonym.

    secret: the secret of backend and issuer, 32 random bytes or more.
    pseudonym: the same for a device each time, and of no meaning to others: letters, digits, ``-`` and ``_``, 64 at
        most.
    expires: time of expiry, in seconds since 1970: a day ahead at most.
    """
    if not re.fullmatch(PSEUDONYM_PATTERN, pseudonym):
        detail = "has other characters, or too many"
        raise InputError(detail, field="pseudonym", remedy="use up to 64 of A-Z a-z 0-9 - _")
    return f"{pseudonym}.{expires}.{_mac(secret, experiment, pseudonym, str(expires))}"


def verify_attestation(text: str, experiment: str, secrets: list[bytes], now: float) -> str:
    """Return the pseudonym of an attestation that a secret signed for the experiment, and refuse others."""
    match = _REGEX.fullmatch(text)
    if match is None or not 0 <= int(match[2]) - now <= LIFETIME_MAX or not _is_signed(match, experiment, secrets):
        detail = "not signed for this experiment by the application's backend, or expired"
        raise AttestationRefused(detail, field=HEADER, remedy="ask the backend for a new one")
    return match[1]


def _is_signed(match: re.Match[str], experiment: str, secrets: list[bytes]) -> bool:
    macs = [_mac(secret, experiment, match[1], match[2]) for secret in secrets]
    return any([hmac.compare_digest(mac, match[3]) for mac in macs])  # noqa: C419 - all of them are compared


def _mac(secret: bytes, experiment: str, pseudonym: str, expires: str) -> str:
    return hmac.new(secret, "\n".join((_TAG, experiment, pseudonym, expires)).encode(), hashlib.sha256).hexdigest()
