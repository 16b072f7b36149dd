"""Participation of n participants in a round: verified terms, decisions, sealed reports. A device has n = 1."""

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
from privateer_core.arrays import Array, Ints
from privateer_core.errors import InputError, Malformed, SpecError, TermsRefused
from privateer_core.policies.gain_policy import check_policy, decode_policy
from privateer_core.policies.policy import Decisions, Policy, Recalling, message_size, prefix_ages
from privateer_core.primitives.bounded_vectors import BoundedVectors
from privateer_core.primitives.contributions import FeatureValues, KeyedValues
from privateer_core.privacy.terms import Terms
from privateer_core.privacy.terms_verification import Limits, verify
from privateer_core.sampling.randomness import SecureNoise
from privateer_core.spec.spec import Spec
from privateer_core.wire.publication import (
    Header,
    Round,
    decode_publication,
    digest,
    hpke_info,
    report_header,
    split_bytes,
)

REPORT_ID_SIZE: Final = 16
SEALING_OVERHEAD_BYTES: Final = 48
"""Bytes that sealing adds to a message: encapsulated key and tag."""
_CHANGEABLE_SECTIONS: Final = {"experiment", "sources", "population", "algorithm"}
"""Sections of a spec that do not affect the meaning of reports and their privacy, except for the names of arms and the
promises to sources."""
_SUITE: Final = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.AES_128_GCM)


class SealedReport(NamedTuple):
    """A report that is sealed to the server, so that the device itself cannot decrypt it."""

    experiment: str  # identity of the experiment
    endpoint: str  # URL that the report was made for
    body: bytes  # body of the request, the same bytes each time


class Sealer:
    """A sealer of a round's reports to its public key, which is checked at once."""

    def __init__(self, round_: Round, header: Header) -> None:
        self._info = hpke_info(header, round_.model)
        try:
            self._key = X25519PublicKey.from_public_bytes(round_.public_key)
            self.seal(b"")  # a point of low order shows only now, and must not show after the report is paid for
        except ValueError:
            raise Malformed("the round's public key cannot be sealed to", remedy="fetch the policy again") from None

    def seal(self, report: bytes) -> bytes:
        """Seal a fresh report id and ``report``; the result is 64 bytes longer than the report."""
        return _SUITE.encrypt(os.urandom(REPORT_ID_SIZE) + report, self._key, info=self._info)


class Participation:
    """A publication that this device has verified, and the operations that follow it.

    body: the publication as fetched.
    name: the name of the requested experiment.
    limits: the limits of the device.
    cohort: the source that the participant belongs to; empty for the experiment's own participants.
    is_paused: whether the server announced a pause beside the publication: then it is not checked against the limits,
    and cannot be reported to.
    """

    def __init__(self, body: bytes, name: str, limits: Limits, cohort: str = "", *, is_paused: bool = False) -> None:
        publication = decode_publication(body)
        self.round, self.cohort, self.is_paused = publication.round, cohort, is_paused
        self.spec = _parse_spec_body(publication.spec)
        # After the horizon participants choose by the final policy, while the round takes late reports.
        self.policy = self.decider = _decode_policy_body(publication.policy, self.spec)
        self.is_draining = publication.drain is not None
        if publication.drain is not None:
            self.decider = _decode_policy_body(publication.drain.policy, self.spec)
        self.header = report_header(self.round, digest(body))
        self._check_agreement(name)
        if cohort not in self.spec.cohorts:
            raise InputError("the experiment has no such source", field="cohort", remedy="see the sources of its spec")
        if self.is_open:
            verify(self.terms, self.spec, cohort, self.round, limits, self.policy.question_type(self.spec))
        self._sealer = Sealer(self.round, self.header)
        self._noise, self._meanings = SecureNoise(), dict[tuple[int, str], bytes]()

    def _check_agreement(self, name: str) -> None:
        """Refuse a publication whose parts disagree."""
        round_, spec, terms = self.round, self.spec, self.terms
        agreements = {
            "experiment": round_.experiment == spec.name == name,
            "version": round_.version == self.policy.version == self.decider.version,
            "model": round_.model == spec.privacy.model == terms.model,
            "batch_size": round_.batch_size == terms.batch_size,
            "messages": round_.messages == terms.messages,
            "groups": round_.groups == terms.mechanism.groups,
            "cohort": self.policy.cohort in spec.cohorts and not (self.is_draining and self.policy.cohort),
            "drain": not self.is_draining or spec.experiment.conversion_window_seconds > 0,
            "deadline": round_.deadline == 0 or spec.round_seconds > 0,
        }
        for field, is_equal in agreements.items():
            _require_agreement(is_equal, field)
        # The size depends on the trust model, which is known to be one by now.
        self._message_size = message_size(self.policy)
        _require_agreement(
            round_.sealed_size == SEALING_OVERHEAD_BYTES + REPORT_ID_SIZE + self._message_size, "sealed_size"
        )

    @property
    def terms(self) -> Terms:
        """The privacy terms of this round's reports."""
        return self.policy.terms

    def meaning(self, options: int, cohort: str = "") -> bytes:
        """Return the cached digest of the spec's meaning for reports (`meaning`), with the first ``options`` arms."""
        if (options, cohort) not in self._meanings:
            self._meanings[options, cohort] = meaning(self.spec, options, cohort)
        return self._meanings[options, cohort]

    @property
    def is_open(self) -> bool:
        """Whether the round takes reports of this participant's cohort; False if the experiment is over or paused."""
        return self.round.batch_size > 0 and self.policy.cohort == self.cohort and not self.is_paused

    @property
    def is_over(self) -> bool:
        """Whether participants choose by the final policy."""
        return self.round.batch_size == 0 or self.is_draining

    @property
    def is_report_requested(self) -> bool:
        """Whether the round asks for a report on a choice that is made now, which it does only before the horizon."""
        return self.is_open and not self.is_draining

    def accepts_version(self, version: int) -> bool:
        """Whether the round takes this participant's report on a decision of the policy of this version."""
        is_late = version < self.round.version
        return self.is_open and self.policy.accepts_decisions_of(version) and (is_late or not self.is_draining)

    @property
    def is_turn_pending(self) -> bool:
        """Whether the rounds of this participant's cohort have not started yet."""
        turns = self.spec.cohorts
        return self.round.batch_size > 0 and turns.index(self.policy.cohort) < turns.index(self.cohort)

    def draw_coins(self, n_participants: int) -> NDArray[np.uint32]:
        """Draw fresh public coins, shape (n,), which must be independent of the contexts."""
        return np.frombuffer(os.urandom(4 * n_participants), dtype=np.uint32)

    def decide(self, contexts: Array, coins: NDArray[np.uint32]) -> Decisions:
        """Decide for n participants with contexts (n, d), scaled to [0, 1], and coins (n,)."""
        return cast(Decisions, self.decider.decide(contexts, coins))

    def make_reports(
        self,
        contexts: Array,
        coins: NDArray[np.uint32],
        decisions: Decisions,
        rewards: Array,
        decided: Ints | None = None,
    ) -> list[bytes]:
        """Randomize and seal the reports of n participants, which must be paid for before they are sent.

        contexts (n, d), coins (n,): of the decisions.
        rewards (n, ...): as the policy's ``read`` makes them.
        decided (n,): versions of the policies that decided, which the round must take (`takes`); default this one.
        """
        # Coins that chose an arm reveal information about it, so the report gets others if it need not have these.
        coins = self.draw_coins(len(coins)) if self.policy.fresh_coins else coins
        contributions = self.policy.contribute(contexts, coins, decisions, rewards)
        ages = np.zeros(len(coins), np.int64) if decided is None else self.round.version - decided
        return self._seal_reports(contributions, ages)

    def make_past_reports(self, contexts: Array, arms: Ints, rewards: Array) -> list[bytes]:
        """Randomize and seal the reports of n participants from a source on their earlier arms (n,); see `reports`.

        Arm -1 is an arm that the spec does not list: its report has no information, and hides that, too.
        """
        policy = cast(Recalling, self.policy)
        recalled = policy.recall(contexts, self.draw_coins(len(arms)), np.maximum(arms, 0), rewards)
        contributions = replace(recalled, keys=np.where(arms < 0, -1, recalled.keys))
        return self._seal_reports(contributions, np.zeros(len(arms), np.int64))

    def _seal_reports(self, contributions: KeyedValues | FeatureValues | BoundedVectors, ages: Ints) -> list[bytes]:
        """Return the sealed messages of each participant, concatenated."""
        mechanism: Any = self.terms.mechanism
        rows = mechanism.randomize(contributions, self._noise)
        reports = [row.tobytes() for row in rows.reshape(len(rows), -1)]
        if self.policy.tells_age:
            reports = prefix_ages(reports, ages)
        return [b"".join(map(self._sealer.seal, split_bytes(report, self._message_size))) for report in reports]


def _require_agreement(is_equal: bool, field: str) -> None:
    if not is_equal:
        raise TermsRefused("round, spec and policy disagree", field=field, remedy="do not take part")


def _parse_spec_body(body: bytes) -> Spec:
    """Parse the spec of a publication; `Malformed` if it is not JSON, or no spec that this version knows."""
    try:
        data = msgspec.json.decode(body, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise Malformed("not a spec", remedy="fetch the policy again") from None
    try:
        return parse_spec(data)
    except SpecError as error:
        remedy = "fetch the policy again, or update the client library"
        detail = f"not a spec that this device knows: {error.detail}"
        raise Malformed(detail, field=error.field, remedy=remedy) from None


def _decode_policy_body(body: bytes, spec: Spec) -> Policy:
    """Parse the policy of a publication, checked against the spec; `TermsRefused` without such a randomizer."""
    try:
        policy = decode_policy(body, algorithm(spec.algorithm.name).policy)
        check_policy(policy, spec)
    except SpecError as error:
        raise TermsRefused("there is no such randomizer", field=error.field, remedy="do not take part") from None
    return policy


def meaning(spec: Spec, options: int | None = None, cohort: str = "") -> bytes:
    """Return a digest of the parts of a spec that determine the meaning of reports and their privacy.

    options: number of arms or actions that are included, the first ones; None: all.
    cohort: the source whose promise is included; empty: the promise to the experiment's own participants.
    """
    tables = spec.model_dump(mode="json", exclude=_CHANGEABLE_SECTIONS, exclude_defaults=True)
    # All names are included, since whether a device reports must not depend on the participant's arm.
    names, promised_epsilon = spec.options[:options], spec.cohort_privacy(cohort).epsilon
    # Keys of tables may come in any order, but contexts have the order of the features.
    digest_input = [tables, list(spec.features), names, promised_epsilon]
    # The parts of an outcome besides the reward are included, since another spec would read its numbers differently.
    default_outcome = spec.without_outcome(None)
    if spec.rewards > 1 or isinstance(default_outcome, Mapping):
        digest_input += [spec.rewards, list(default_outcome) if isinstance(default_outcome, Mapping) else []]
    if spec.experiment.reports_per_person > 1:
        digest_input += [spec.experiment.reports_per_person, spec.experiment.report_period_seconds]
    return hashlib.sha256(msgspec.json.encode(digest_input, order="deterministic")).digest()
