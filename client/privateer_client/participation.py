"""Participation of n people in one round: checked terms, decisions, sealed reports. A device has n = 1."""

import hashlib
import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple, cast

import msgspec
import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite
from numpy.typing import NDArray

from privateer_core.algorithms import algorithm, parse_spec
from privateer_core.errors import InputError, Malformed, SpecError, TermsRefused
from privateer_core.policies.decisions import Decisions, message_size, with_ages
from privateer_core.policies.gain_policy import check_policy, decode_policy
from privateer_core.policies.policy import Policy, Recalling
from privateer_core.primitives.bounded_vectors import BoundedVectors
from privateer_core.primitives.contributions import KeyedValues
from privateer_core.privacy.terms import Terms
from privateer_core.privacy.terms_verification import Limits, verify
from privateer_core.sampling.entropy import SecureNoise
from privateer_core.spec.spec import Spec
from privateer_core.wire.envelope import Header, binding, header_of, pieces
from privateer_core.wire.publication import Round, decode_publication, digest

REPORT_ID_SIZE: Final = 16
OVERHEAD: Final = 48
"""Bytes that sealing adds: encapsulated key and tag."""
_MAY_CHANGE: Final = {"experiment", "sources", "population", "algorithm"}
"""Sections of a spec that say nothing about what a report means and what is promised for it, but for the names of arms
and what a source is promised."""
_SUITE: Final = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.AES_128_GCM)


class SealedReport(NamedTuple):
    """A report on its way: sealed to the server, so that the device itself can no longer open it."""

    experiment: str  # identity of the experiment
    endpoint: str  # URL that the report was made for
    body: bytes  # what the device sends there: the same bytes each time


class Sealer:
    """Seals the reports of one round to its public key."""

    def __init__(self, round_: Round, header: Header) -> None:
        self._info = binding(header, round_.model)
        try:
            self._key = X25519PublicKey.from_public_bytes(round_.public_key)
            self.seal(b"")  # a point of low order shows only now, and must not show after the report is paid for
        except ValueError:
            raise Malformed("the round's public key cannot be sealed to", remedy="fetch the policy again") from None

    def seal(self, report: bytes) -> bytes:
        """Seal a fresh report id and ``report``; the result is 64 bytes longer than the report."""
        return _SUITE.encrypt(os.urandom(REPORT_ID_SIZE) + report, self._key, info=self._info)


class Participation:
    """A publication that this device has checked and will follow.

    body: as fetched.
    name: of the experiment that was asked for.
    limits: what the device accepts.
    cohort: the source that the person belongs to; empty for the experiment's own people.
    is_paused: whether the server said beside the publication that nobody is asked now: what was not checked against
    the limits, and can never report.
    """

    def __init__(self, body: bytes, name: str, limits: Limits, cohort: str = "", *, is_paused: bool = False) -> None:
        publication = decode_publication(body)
        self.round, self.cohort, self.is_paused = publication.round, cohort, is_paused
        self.spec = _spec(publication.spec)
        # Once the horizon is reached people choose by the final policy, while the round takes late reports.
        self.policy = self.decider = _policy(publication.policy, self.spec)
        self.drains = publication.drain is not None
        if publication.drain is not None:
            self.decider = _policy(publication.drain.policy, self.spec)
        self.header = header_of(self.round, digest(body))
        self._agree(name)
        if cohort not in self.spec.cohorts:
            raise InputError("the experiment has no such source", field="cohort", remedy="see the sources of its spec")
        if self.is_open:
            verify(self.terms, self.spec, cohort, self.round, limits, self.policy.question(self.spec))
        self._sealer = Sealer(self.round, self.header)
        self._noise, self._meanings = SecureNoise(), dict[tuple[int, str], bytes]()

    def _agree(self, name: str) -> None:
        """Refuse a publication whose parts disagree."""
        round_, spec, terms = self.round, self.spec, self.terms
        same = {
            "experiment": round_.experiment == spec.name == name,
            "version": round_.version == self.policy.version == self.decider.version,
            "model": round_.model == spec.privacy.model == terms.model,
            "batch": round_.batch == terms.batch,
            "messages": round_.messages == terms.messages,
            "groups": round_.groups == terms.mechanism.groups,
            "cohort": self.policy.cohort in spec.cohorts and not (self.drains and self.policy.cohort),
            "drain": not self.drains or spec.experiment.conversion_window > 0,
            "deadline": round_.deadline == 0 or spec.round_seconds > 0,
        }
        for field, agrees in same.items():
            _check(agrees, field)
        # The size depends on the trust model, which is known to be one by now.
        self._message_size = message_size(self.policy)
        _check(round_.sealed_size == OVERHEAD + REPORT_ID_SIZE + self._message_size, "sealed_size")

    @property
    def terms(self) -> Terms:
        """How reports of this round are randomized."""
        return self.policy.terms

    def meaning(self, options: int, cohort: str = "") -> bytes:
        """Return the digest of what the spec says about reports (`meaning`), with the first ``options`` arms."""
        if (options, cohort) not in self._meanings:
            self._meanings[options, cohort] = meaning(self.spec, options, cohort)
        return self._meanings[options, cohort]

    @property
    def is_open(self) -> bool:
        """Whether the round takes reports of this person's cohort; False when the experiment is over or paused."""
        return self.round.batch > 0 and self.policy.cohort == self.cohort and not self.is_paused

    @property
    def is_over(self) -> bool:
        """Whether people decide by the final policy."""
        return self.round.batch == 0 or self.drains

    @property
    def asks(self) -> bool:
        """Whether it takes a report on what this person chooses now: not once the horizon is reached."""
        return self.is_open and not self.drains

    def takes(self, decided: int) -> bool:
        """Whether the round takes this person's report on what the policy of version ``decided`` decided."""
        is_late = decided < self.round.version
        return self.is_open and self.policy.takes(decided) and (is_late or not self.drains)

    @property
    def waits(self) -> bool:
        """Whether the turn of this person's cohort is still to come."""
        turns = self.spec.cohorts
        return self.round.batch > 0 and turns.index(self.policy.cohort) < turns.index(self.cohort)

    def coins(self, people: int) -> NDArray[np.uint32]:
        """Draw fresh public coins, shape (n,); draw them before anybody looks at the contexts."""
        return np.frombuffer(os.urandom(4 * people), dtype=np.uint32)

    def decide(self, contexts: NDArray[np.float64], coins: NDArray[np.uint32]) -> Decisions:
        """Decide for n people with contexts (n, d), scaled to [0, 1], and coins (n,)."""
        return cast(Decisions, self.decider.decide(contexts, coins))

    def reports(
        self,
        contexts: NDArray[np.float64],
        coins: NDArray[np.uint32],
        decisions: Decisions,
        rewards: NDArray[np.float64],
        decided: NDArray[np.int64] | None = None,
    ) -> list[bytes]:
        """Randomize and seal the reports of n people; pay before anything is sent.

        contexts (n, d), coins (n,): of the decisions.
        rewards (n, ...): as the policy's ``read`` makes them.
        decided (n,): versions of the policies that decided, which the round must take (`takes`); default this one.
        """
        # Coins that chose an arm would tell something about it, so they stay here if the report can do without.
        coins = self.coins(len(coins)) if self.policy.fresh_coins else coins
        contributions = self.policy.contribute(contexts, coins, decisions, rewards)
        ages = np.zeros(len(coins), np.int64) if decided is None else self.round.version - decided
        return self._sealed(contributions, ages)

    def recorded(
        self, contexts: NDArray[np.float64], arms: NDArray[np.int64], rewards: NDArray[np.float64]
    ) -> list[bytes]:
        """Randomize and seal the reports of n people of a source on arms (n,) that they played before; see `reports`.

        Only an experiment with sources has such people. Arm -1 is one that the spec does not list: there is nothing to
        say about it, and a report hides that as it hides everything.
        """
        policy = cast(Recalling, self.policy)
        recalled = policy.recall(contexts, self.coins(len(arms)), np.maximum(arms, 0), rewards)
        listed = replace(recalled, keys=np.where(arms < 0, -1, recalled.keys))
        return self._sealed(listed, np.zeros(len(arms), np.int64))

    def _sealed(self, contributions: KeyedValues | BoundedVectors, ages: NDArray[np.int64]) -> list[bytes]:
        """Return what each person sends: all sealed messages, one after another."""
        mechanism: Any = self.terms.mechanism
        rows = mechanism.randomize(contributions, self._noise)
        reports = [row.tobytes() for row in rows.reshape(len(rows), -1)]
        if self.policy.tells_age:
            reports = with_ages(reports, ages)
        return [b"".join(map(self._sealer.seal, pieces(report, self._message_size))) for report in reports]


def _check(agrees: bool, field: str) -> None:
    if not agrees:
        raise TermsRefused("round, spec and policy disagree", field=field, remedy="do not take part")


def _spec(body: bytes) -> Spec:
    try:
        data = msgspec.json.decode(body, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise Malformed("not a spec", remedy="fetch the policy again") from None
    try:
        return parse_spec(data)
    except SpecError as error:
        remedy = "fetch the policy again, or update the client library"
        raise Malformed(
            f"not a spec that this device knows: {error.detail}", field=error.field, remedy=remedy
        ) from None


def _policy(body: bytes, spec: Spec) -> Policy:
    try:
        policy = decode_policy(body, algorithm(spec.algorithm.name).policy)
        check_policy(policy, spec)
    except SpecError as error:
        raise TermsRefused("there is no such randomizer", field=error.field, remedy="do not take part") from None
    return policy


def meaning(spec: Spec, options: int | None = None, cohort: str = "") -> bytes:
    """Return a digest of what a spec says about the meaning of reports, and what it promises for them.

    options: how many of its arms or actions count, the first ones; None: all.
    cohort: the source whose people are promised something; empty: the experiment's own people.
    """
    tables = spec.model_dump(mode="json", exclude=_MAY_CHANGE, exclude_defaults=True)
    # All names count, not only that of the person's arm: whether a device reports would tell which one that is.
    names, promised = spec.options[:options], spec.privacy_of(cohort).epsilon
    # Keys of tables may come in any order, but contexts have the order of the features.
    said = [tables, list(spec.features), names, promised]
    # What an outcome has besides one reward: another spec would read the same numbers as something else.
    nothing = spec.without_outcome(None)
    if spec.rewards > 1 or isinstance(nothing, Mapping):
        said += [spec.rewards, list(nothing) if isinstance(nothing, Mapping) else []]
    if spec.experiment.reports_per_person > 1:
        said += [spec.experiment.reports_per_person, spec.experiment.report_period]
    return hashlib.sha256(msgspec.json.encode(said, order="deterministic")).digest()
