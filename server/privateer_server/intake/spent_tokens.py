"""Spent upload tokens: a token is spent once, in the transaction that counts its report."""

import hashlib
from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec

from privateer_core.errors import DuplicateReport, PrivateerError
from privateer_core.primitives.secret_values import SecretValues
from privateer_core.serving.token_gate import Admission
from privateer_server.store.records import TokenRow

_HASH_BYTES: Final = 16
_TOKEN_BYTES: Final = 12
"""Two of a hundred million random tokens share 96 bits with probability 6e-14. A device that
chooses colliding nonces can spend only one of them, since the issuer signs nonces."""
_REPORT_BYTES: Final = 4
"""These bytes decide how a spent token is refused, and neither refusal counts a report: another report with the
same 32 bits is refused as counted before."""
DUPLICATE_REPORT: Final = DuplicateReport("the report was counted before", remedy="nothing to do: it counts once")
FindTokenReport = Callable[[int, bytes], bytes | None]
"""Returns the hash of a token's report, by expiry of its key and hash of the token; None if it was not spent."""


class ReportToken(NamedTuple):
    """A report's upload token, which is spent if the report counts."""

    # hashes of the nonce with its experiment, and of the sealed report: a repeated report is recognized without
    # decryption. Devices choose nonces, so two experiments may get the same nonce, and each is spent by itself.
    row: TokenRow
    refusal: PrivateerError  # the refusal of another report with the same token

    @classmethod
    def from_admission(cls, admission: Admission, sealed: bytes) -> "ReportToken":
        """Return the token that admits a sealed report."""
        nonce_with_experiment = admission.experiment.encode() + admission.nonce
        row = TokenRow(admission.expires, _hash(nonce_with_experiment)[:_TOKEN_BYTES], _hash(sealed)[:_REPORT_BYTES])
        return cls(row, admission.spent_error())


class ReportTokens(SecretValues, frozen=True, eq=False):
    """The tokens of counted reports: each is spent once. Those in the store count, and those not stored yet."""

    find_stored: FindTokenReport
    new_rows: dict[bytes, TokenRow] = msgspec.field(default_factory=dict[bytes, TokenRow])  # by hash of the token

    def check_unspent(self, token: ReportToken) -> None:
        """Refuse a token that was spent."""
        row, new_row = token.row, self.new_rows.get(token.row.token)
        previous_report = new_row.report if new_row else self.find_stored(row.expires, row.token)
        if previous_report is not None:
            raise DUPLICATE_REPORT if previous_report == row.report else token.refusal

    def spend(self, token: ReportToken) -> None:
        """Spend the token of a report that counts; it is stored with the report."""
        self.new_rows[token.row.token] = token.row


def _hash(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=_HASH_BYTES).digest()
