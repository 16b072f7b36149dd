"""Taking part in one round: checked terms, arms, and sealed reports. For n people at once; a device has n = 1."""

import os

import numpy as np
from numpy.typing import NDArray

from privateer.algorithms.partition import PartitionPolicy
from privateer.errors import InputError, TermsRefused
from privateer.experiment import Spec
from privateer.verification import Limits, verify
from privateer_client.followed import Followed


class Participation(Followed):
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

    spec: Spec
    policy: PartitionPolicy

    def __init__(self, body: bytes, name: str, limits: Limits, cohort: str = "") -> None:
        super().__init__(body, Spec, PartitionPolicy, "call join_phase, which is for phased experiments")
        self.policy.check(self.spec.arm_count)
        self.cohort = cohort
        self._agree(
            name,
            dimension=self.policy.dimension == self.spec.dimension,
            cohort=not self.policy.cohort or self.spec.source(self.policy.cohort) is not None,
            deadline=self.round.deadline == 0,
        )
        if cohort and self.spec.source(cohort) is None:
            raise InputError("the experiment has no such source", field="cohort", remedy="see the sources of its spec")
        if self.terms.mechanism == "laplace":
            raise TermsRefused("a mechanism of the lab", field="mechanism", remedy="do not take part")
        if self.asks:
            verify(self.terms, self.spec.privacy_of(cohort), self.round.batch, limits)
        self._prepare()

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
        self,
        contexts: NDArray[np.float64],
        slots: NDArray[np.uint32],
        arms: NDArray[np.int64],
        rewards: NDArray[np.float64],
    ) -> list[bytes]:
        """Sealed reports of n people on one choice each.

        Parameters
        ----------
        contexts
            Shape (n, d), scaled to [0, 1].
        slots, arms
            Shape (n,): the slots of the choices, and the arms that `choose` gave for them. Where the arm is in the key,
            the slots of the choices stay here: the reports get slots of their own.
        rewards
            Shape (n,), scaled to [0, 1].

        Notes
        -----
        Privacy cost: ``terms.local_epsilon`` each, pure and local; under ``central`` and ``none`` the records are sent
        as they are, sealed to the curator. Pay for it before anything is sent.
        """
        if self.terms.arm_in_key:
            slots = self.slots(len(slots))
        return self._sealed(self.policy.contribute(contexts, slots, arms, rewards))

    def recorded(
        self, contexts: NDArray[np.float64], arms: NDArray[np.int64], rewards: NDArray[np.float64]
    ) -> list[bytes]:
        """Sealed reports of n people of a source, on arms (n,) that they played before; as `reports`."""
        return self._sealed(self.policy.contribute_recorded(contexts, self.slots(len(arms)), arms, rewards))
