"""The one round loop: server, simulator, audit and tests open, close, miss and finish rounds by it. It does no I/O."""

from typing import Any

from privateer.result import Result
from privateer.spec import Spec
from privateer_server.algorithms import Bulk, Learner, Step, learner_for

__all__ = ["Bulk", "Schedule", "Step"]


class Schedule:
    """The rounds of one experiment.

    A round is opened, takes reports, and is closed with what its mechanism releases; or it is missed, and nothing is
    released of it. The experiment is finished when a step asks nobody (``batch`` 0).

    Parameters
    ----------
    spec
        The experiment's spec.

    Attributes
    ----------
    learner
        The experiment's learner; it is made once.
    """

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self.learner: Learner = learner_for(spec)

    def open(self, seed: int, version: int = 1) -> Step:
        """Open the first round.

        Parameters
        ----------
        seed
            Public, 63 bits.

        Raises
        ------
        SpecError
            If no reports of the round's people keep the promise, or nobody would be asked.
        """
        return self.learner.next(self.learner.start(seed), version, seed)

    def close(self, step: Step, release: Any, seed: int, version: int | None = None) -> Step:
        """Learn from a round's release, and open the next one; by default it has the next version."""
        state = self.learner.learn(step.state, step.policy, release)
        return self.learner.next(state, self._after(step, version), seed)

    def miss(self, step: Step, seed: int, version: int | None = None, *, again: bool) -> Step:
        """Open the round after one of which nothing is released; ``again``: it asks other people the same."""
        state = self.learner.miss(step.state, step.policy, again=again)
        return self.learner.next(state, self._after(step, version), seed)

    def _after(self, step: Step, version: int | None) -> int:
        return step.policy.version + 1 if version is None else version

    def failed(self, step: Step) -> bool:
        """Whether the experiment is over because a round came to no end."""
        return self.learner.failed(step.state)

    def result(self, step: Step) -> Result | None:
        """Return what the experiment has found when this step opened, if its algorithm tells."""
        return self.learner.result(step.state)
