"""Taking part in one phase: who is asked, and sealed vectors. For n people at once; a device has n = 1."""

import os

import numpy as np
from numpy.typing import NDArray

from privateer.algorithms.phased import PhasedPolicy
from privateer.mechanisms.vector_verification import verify_vectors
from privateer.phased import PhasedSpec
from privateer.verification import Limits
from privateer_client.followed import Followed


class Phase(Followed):
    """A publication of a phased experiment that this device has checked and will follow.

    Parameters
    ----------
    body
        The publication, as fetched.
    name
        Of the experiment that was asked for.
    limits
        What the device accepts.

    Raises
    ------
    TermsRefused
        If the terms miss the spec's promise or the limits; everything is computed anew from the parameters.
    Malformed
        If the publication is none, or its parts disagree.
    InputError
        If the experiment is not a phased one.
    """

    spec: PhasedSpec
    policy: PhasedPolicy

    def __init__(self, body: bytes, name: str, limits: Limits) -> None:
        super().__init__(body, PhasedSpec, PhasedPolicy, "call join, which is for experiments with arms")
        self.policy.check(self.spec.actions.shape[0])
        people = self.spec.experiment.people
        self._agree(
            name,
            places=self.policy.places == self.spec.asked(self.round.batch),
            people=self.policy.start + self.policy.places <= people,
            middle=self.policy.middle == self.spec.middle,
        )
        if self.round.batch:
            verify_vectors(self.terms, self.spec, self.round, limits)
        self._prepare()

    @property
    def plays(self) -> dict[int, int]:
        """How often each action of the phase is played, by its row."""
        return dict(zip(self.policy.support.tolist(), self.policy.plays.tolist(), strict=True))

    def asks(self, number: int) -> bool:
        """Whether the phase asks the person of this number; False when the experiment is over."""
        return self.round.batch > 0 and self.policy.asks(self.spec.experiment.people, number)

    def reports(self, averages: NDArray[np.float64]) -> list[bytes]:
        """Sealed vectors of n people who are asked, from their average rewards (n, actions of the phase).

        Notes
        -----
        Privacy cost: ``terms.epsilon`` and ``terms.delta`` each, under the trust model. Under ``shuffle`` that rests on
        the noise of the whole batch, under ``central`` and ``none`` vectors are sent as they are. Pay for it before
        anything is sent.
        """
        slots = np.frombuffer(os.urandom(4 * len(averages)), dtype=np.uint32)
        return self._sealed(self.policy.contribute(slots, averages))
