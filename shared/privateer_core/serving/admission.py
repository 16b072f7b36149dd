"""Comparison of an experiment's rounds with the published limits of the services that carry them.

The server compares before it creates an experiment, the shuffler before it takes reports for a round, and the command
line before an experiment is started.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from privateer_core.errors import SpecError
from privateer_core.wire.publication import MESSAGES_MAX

_HEADER_BYTES: Final = 1024
"""Upper bound on the header of an upload or a batch."""


class ServerLimits(msgspec.Struct, frozen=True):
    """A server's limits in bytes: of an upload, a batch and all bodies together. The defaults are the server's."""

    report_bytes_max: int = 4 << 20
    batch_bytes_max: int = 256 << 20
    body_budget: int = 256 << 20


class ShufflerLimits(msgspec.Struct, frozen=True):
    """A shuffler's limits: participants of a batch, bytes of an upload and of all, bytes and messages of a batch.

    The defaults are the shuffler's. No setting changes the last two, since a batch is sent from memory.
    """

    min_batch: int = 100
    body_limit: int = 8 << 20
    body_budget: int = 64 << 20
    batch_bytes_max: int = 1 << 30
    messages_max: int = 1 << 24


class RoundSize(NamedTuple):
    """The size of a round: its participants, the sealed messages of each, and the bytes of a message."""

    n_participants: int
    messages: int
    sealed_size: int

    def request_bytes(self, n_participants: int) -> int:
        """Return the bytes of a request with the reports of ``n_participants``."""
        return n_participants * self.messages * self.sealed_size + _HEADER_BYTES


class ExperimentSize(NamedTuple):
    """The smallest and the largest rounds that an experiment can have, and the spec fields that determine them."""

    min_participants: int
    rounds: Sequence[RoundSize]
    is_shuffled: bool
    growth: tuple[str, str] = ("experiment.round_size", "experiment.min_round_fraction")
    is_shared: bool = False  # whether reports are shares of two servers, whose promise needs no crowd

    def find_refusals(
        self, server: ServerLimits | None = None, shuffler: ShufflerLimits | None = None
    ) -> list[SpecError]:
        """Return an error, with field, setting and remedy, for each limit of the services that the rounds exceed."""
        field, other_fields = self.growth
        size_fix = f"lower it, or {other_fields}"
        report_bytes = max(round_.request_bytes(1) for round_ in self.rounds)
        report_field, noise_fix = "privacy.epsilon", "raise it, or share noise among more"
        if self.is_shared:  # a report grows with the cells of a vote alone
            report_field, noise_fix = "experiment.horizon", "lower it, so that a vote has fewer cells"
        report_text = f"a person sends up to {report_bytes:,} bytes"
        if not self.is_shuffled:
            limit = server and _Limit(
                "server", "PRIVATEER_REPORT_BYTES_MAX", server.report_bytes_max, server.body_budget
            )
            return limit.check(report_bytes, report_text, "privacy.epsilon", noise_fix) if limit else []
        largest = max(self.rounds, key=lambda round_: round_.request_bytes(round_.n_participants))
        batch_bytes = largest.request_bytes(largest.n_participants)
        n_messages = max(round_.n_participants * round_.messages for round_ in self.rounds)
        batch_text = f"a round of {largest.n_participants:,} people comes to {batch_bytes:,} bytes"
        n_own_messages = max(round_.messages for round_ in self.rounds)
        own_text = f"a person sends up to {n_own_messages:,} messages"
        refusals = _Limit("device", "", MESSAGES_MAX).check(n_own_messages, own_text, report_field, noise_fix)
        if server:
            limit = _Limit("server", "PRIVATEER_BATCH_BYTES_MAX", server.batch_bytes_max, server.body_budget)
            # Where noise alone makes a report too large, fewer participants do not help.
            cause = (report_field, noise_fix) if report_bytes > server.report_bytes_max else (field, size_fix)
            refusals += limit.check(batch_bytes, batch_text, *cause)
        if shuffler:
            refusals += [] if self.is_shared else self._find_min_batch_refusals(shuffler.min_batch)
            limit = _Limit("shuffler", "PRIVATEER_BODY_LIMIT", shuffler.body_limit, shuffler.body_budget)
            refusals += limit.check(report_bytes, report_text, report_field, noise_fix)
            refusals += _Limit("shuffler", "", shuffler.batch_bytes_max).check(batch_bytes, batch_text, field, size_fix)
            messages_text = f"a round comes to {n_messages:,} messages"
            refusals += _Limit("shuffler", "", shuffler.messages_max).check(n_messages, messages_text, field, size_fix)
        return refusals

    def _find_min_batch_refusals(self, min_batch: int) -> list[SpecError]:
        """Return an error if a round may close with fewer reports than the shuffler releases, else none."""
        if self.min_participants >= min_batch:
            return []
        releases = f"the shuffler releases no fewer than PRIVATEER_MIN_BATCH={min_batch} at once"
        remedy = f"raise it to {min_batch}, and the first round to as many people, or set "
        remedy += f"PRIVATEER_MIN_BATCH={self.min_participants} at the shuffler for trials with simulated people alone"
        detail = f"a round may close at {self.min_participants:,} reports, and {releases}"
        return [SpecError(detail, field="privacy.min_batch", remedy=remedy)]


class _Limit(NamedTuple):
    """A limit of a service, and the setting that gives it, if there is such a setting."""

    service: str
    setting: str
    limit: int
    budget: int = 0

    def check(self, required: int, sentence: str, field: str, remedy: str) -> list[SpecError]:
        """Return an error with the setting that would be large enough if more is required than the limit; else none."""
        if required <= self.limit:
            return []
        if self.setting:
            budget = f" and PRIVATEER_BODY_BUDGET={required}" if required > self.budget else ""
            remedy += f", or set {self.setting}={required}{budget} at the {self.service}"
        limit = f"{self.setting}={self.limit}" if self.setting else f"{self.limit:,}, whatever its settings,"
        return [SpecError(f"{sentence}, and the {self.service} takes {limit} at once", field=field, remedy=remedy)]


def raise_refusals(refusals: Sequence[SpecError], note: str = "") -> None:
    """Raise all refusals as a single error, if there are any, with a note on the source of the limits."""
    if refusals:
        last = refusals[-1]
        message = "; ".join(map(str, refusals)).removeprefix(f"{refusals[0].field}: ")
        detail = message.removesuffix(f" ({last.remedy})")
        raise SpecError(detail, field=refusals[0].field, remedy=f"{last.remedy}; {note}" if note else last.remedy)
