"""Compares the rounds of an experiment with the limits of the services that carry them, which publish these limits.

The server asks before it creates an experiment, the shuffler before it takes reports for a round, and the command line
before anything is started.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from privateer_core.errors import SpecError

_HEADER_BYTES: Final = 1024
"""More than the header of an upload or a batch takes."""


class ServerLimits(msgspec.Struct, frozen=True):
    """The bytes that a server takes, of an upload, a batch and all bodies together; by default as it is shipped."""

    report_bytes_max: int = 4 << 20
    batch_bytes_max: int = 256 << 20
    body_budget: int = 256 << 20


class ShufflerLimits(msgspec.Struct, frozen=True):
    """What a shuffler takes: fewest people of a batch, bytes of an upload and of all, bytes and messages of a batch.

    The defaults are as it is shipped. No setting changes the last two, since a batch leaves from memory.
    """

    min_batch: int = 100
    body_limit: int = 8 << 20
    body_budget: int = 64 << 20
    batch_bytes_max: int = 1 << 30
    messages_max: int = 1 << 24


class RoundSize(NamedTuple):
    """The size of a round: its people, the sealed messages of each, and the bytes of one."""

    people: int
    messages: int
    sealed_size: int

    def request_bytes(self, people: int) -> int:
        """Return the bytes that people send at once."""
        return people * self.messages * self.sealed_size + _HEADER_BYTES


class ExperimentSize(NamedTuple):
    """The smallest round and the largest ones that can come, and what of the spec makes them large."""

    fewest: int
    rounds: Sequence[RoundSize]
    is_shuffled: bool
    growth: tuple[str, str] = ("experiment.round_size", "experiment.round_growth")

    def find_refusals(
        self, server: ServerLimits | None = None, shuffler: ShufflerLimits | None = None
    ) -> list[SpecError]:
        """Return why services with these limits refuse it, each with the spec's field, the setting and the remedy."""
        field, others = self.growth
        fewer = f"lower it, or {others}"
        person, noise = max(round_.request_bytes(1) for round_ in self.rounds), "raise it, or share noise among more"
        sends = f"a person sends up to {person:,} bytes"
        if not self.is_shuffled:
            limit = server and _Limit(
                "server", "PRIVATEER_REPORT_BYTES_MAX", server.report_bytes_max, server.body_budget
            )
            return limit.check(person, sends, "privacy.epsilon", noise) if limit else []
        largest = max(self.rounds, key=lambda round_: round_.request_bytes(round_.people))
        batch, messages = largest.request_bytes(largest.people), max(one.people * one.messages for one in self.rounds)
        comes_to = f"a round of {largest.people:,} people comes to {batch:,} bytes"
        refusals = list[SpecError]()
        if server:
            limit = _Limit("server", "PRIVATEER_BATCH_BYTES_MAX", server.batch_bytes_max, server.body_budget)
            # Where noise alone makes a person's report larger than any, fewer people do not help.
            cause = ("privacy.epsilon", noise) if person > server.report_bytes_max else (field, fewer)
            refusals += limit.check(batch, comes_to, *cause)
        if shuffler:
            refusals += self._check_fewest(shuffler.min_batch)
            limit = _Limit("shuffler", "PRIVATEER_BODY_LIMIT", shuffler.body_limit, shuffler.body_budget)
            refusals += limit.check(person, sends, "privacy.epsilon", noise)
            refusals += _Limit("shuffler", "", shuffler.batch_bytes_max).check(batch, comes_to, field, fewer)
            sent = f"a round comes to {messages:,} messages"
            refusals += _Limit("shuffler", "", shuffler.messages_max).check(messages, sent, field, fewer)
        return refusals

    def _check_fewest(self, least: int) -> list[SpecError]:
        if self.fewest >= least:
            return []
        releases = f"the shuffler releases no fewer than PRIVATEER_MIN_BATCH={least} at once"
        remedy = f"raise it to {least}, and the first round to as many people, or set "
        remedy += f"PRIVATEER_MIN_BATCH={self.fewest} at the shuffler for trials with simulated people alone"
        detail = f"a round may close at {self.fewest:,} reports, and {releases}"
        return [SpecError(detail, field="privacy.min_batch", remedy=remedy)]


class _Limit(NamedTuple):
    """The most that a service takes at once, and the setting that says so, if any does."""

    service: str
    setting: str
    most: int
    budget: int = 0

    def check(self, needed: int, sentence: str, field: str, remedy: str) -> list[SpecError]:
        if needed <= self.most:
            return []
        if self.setting:
            budget = f" and PRIVATEER_BODY_BUDGET={needed}" if needed > self.budget else ""
            remedy += f", or set {self.setting}={needed}{budget} at the {self.service}"
        limit = f"{self.setting}={self.most}" if self.setting else f"{self.most:,}, whatever its settings,"
        return [SpecError(f"{sentence}, and the {self.service} takes {limit} at once", field=field, remedy=remedy)]


def refuse(refusals: Sequence[SpecError], note: str = "") -> None:
    """Raise all refusals as one error, if there are any, with a note on whose limits these are."""
    if refusals:
        last = refusals[-1]
        said = "; ".join(map(str, refusals)).removeprefix(f"{refusals[0].field}: ")
        detail = said.removesuffix(f" ({last.remedy})")
        raise SpecError(detail, field=refusals[0].field, remedy=f"{last.remedy}; {note}" if note else last.remedy)
