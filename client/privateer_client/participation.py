"""Taking part in one round: checked terms, arms, and sealed reports. For n people at once; a device has n = 1."""

import os

import msgspec
import numpy as np
from numpy.typing import NDArray

from privateer.codec import decode
from privateer.contributions import KeyedValues
from privateer.errors import InputError, Malformed, TermsRefused
from privateer.experiment import Spec, parse_spec
from privateer.policies.partition import PartitionPolicy
from privateer.privacy.noise import SecureNoise
from privateer.privacy.terms import Terms
from privateer.privacy.verification import Limits, verify
from privateer.privatizers import privatizer_for
from privateer.wire.envelope import header_of
from privateer.wire.publication import Publication, decode_publication, digest
from privateer_client.sealing import OVERHEAD, REPORT_ID_SIZE, Sealer


class Participation:
    """A publication that this device has checked and will follow.

    Parameters
    ----------
    body
        The publication, as fetched.
    name
        Of the experiment that was asked for.
    limits
        What the device accepts.
    cohort
        The source that the person belongs to; empty for the experiment's own people.

    Raises
    ------
    TermsRefused
        If the terms miss the spec's promise or the limits; everything is computed anew from the parameters.
    Malformed
        If the publication is none, or its parts disagree.
    """

    def __init__(self, body: bytes, name: str, limits: Limits, cohort: str = "") -> None:
        publication = decode_publication(body)
        self.round = publication.round
        self.spec = _spec(publication)
        self.policy = decode(publication.policy, PartitionPolicy)
        self.header = header_of(self.round, digest(body))
        self.policy.check(self.spec.arm_count)
        self.cohort = cohort
        self._check_agreement(name)
        if cohort and self.spec.source(cohort) is None:
            raise InputError("the experiment has no such source", field="cohort", remedy="see the sources of its spec")
        if self.terms.mechanism == "laplace":
            raise TermsRefused("a mechanism of the lab", field="mechanism", remedy="do not take part")
        if self.asks:
            verify(self.terms, self.spec.privacy_of(cohort), self.round.batch, limits)
        self._privatizer = privatizer_for(self.policy.layout, self.terms)
        if self.round.sealed_size != OVERHEAD + REPORT_ID_SIZE + self._privatizer.report_size:
            raise TermsRefused("not the size of this mechanism's reports", field="sealed_size")
        self._sealer = Sealer(self.round, self.header)
        self._noise = SecureNoise()

    def _check_agreement(self, name: str) -> None:
        same = {
            "experiment": self.round.experiment == self.spec.experiment.name == name,
            "version": self.round.version == self.policy.version,
            "model": self.round.model == self.spec.privacy.model == self.terms.model,
            "batch": self.round.batch == self.terms.batch,
            "dimension": self.policy.dimension == self.spec.dimension,
            "cohort": not self.policy.cohort or self.spec.source(self.policy.cohort) is not None,
        }
        for field, agrees in same.items():
            if not agrees:
                raise TermsRefused("round, spec and policy disagree", field=field, remedy="do not take part")

    @property
    def terms(self) -> Terms:
        """How reports of this round are randomized."""
        return self.policy.terms

    @property
    def asks(self) -> bool:
        """Whether the round takes reports of this person's cohort; False when the experiment is over."""
        return self.round.batch > 0 and self.policy.cohort == self.cohort

    @property
    def waits(self) -> bool:
        """Whether the turn of this person's cohort is still to come."""
        turns = [source.name for source in self.spec.cohorts] + [""]
        return self.round.batch > 0 and turns.index(self.policy.cohort) < turns.index(self.cohort)

    def slots(self, people: int) -> NDArray[np.uint32]:
        """Fresh slots, to be drawn before the contexts are looked at; shape (n,)."""
        return np.frombuffer(os.urandom(4 * people), dtype=np.uint32)

    def choose(self, contexts: NDArray[np.float64], slots: NDArray[np.uint32]) -> NDArray[np.int64]:
        """Arms for contexts (n, d) scaled to [0, 1]; shape (n,)."""
        return self.policy.choose(contexts, slots)

    def reports(
        self, contexts: NDArray[np.float64], slots: NDArray[np.uint32], rewards: NDArray[np.float64]
    ) -> list[bytes]:
        """Sealed reports of n people, with rewards (n,) scaled to [0, 1].

        Notes
        -----
        Privacy cost: ``terms.local_epsilon`` each, pure and local; under ``central`` and ``none`` the records are sent
        as they are, sealed to the curator. Pay for it before anything is sent.
        """
        return self._sealed(self.policy.contribute(contexts, slots, rewards))

    def recorded(
        self,
        contexts: NDArray[np.float64],
        slots: NDArray[np.uint32],
        arms: NDArray[np.int64],
        rewards: NDArray[np.float64],
    ) -> list[bytes]:
        """Sealed reports of n people of a source, on arms (n,) that they played before; as `reports`."""
        return self._sealed(self.policy.contribute_recorded(contexts, slots, arms, rewards))

    def _sealed(self, contributions: KeyedValues) -> list[bytes]:
        reports = self._privatizer.randomize(contributions, self._noise)
        return [self._sealer.seal(reports[i : i + 1].tobytes()) for i in range(len(reports))]


def _spec(publication: Publication) -> Spec:
    try:
        data = msgspec.json.decode(publication.spec)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise Malformed("not a spec", remedy="fetch the policy again") from None
    return parse_spec(data)
