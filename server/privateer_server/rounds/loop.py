"""The one round loop: server, simulator, audit and tests open, close, miss and finish rounds by it. It does no I/O."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, TypeAlias

from privateer_core.answer import Answer
from privateer_core.errors import SpecError
from privateer_core.policies.gain_policy import GainPolicy
from privateer_core.policies.policy import Policy
from privateer_core.spec.spec import Spec
from privateer_server.algorithms import Bulk, Learner, Step, learner_for

Decided: TypeAlias = Sequence[tuple[Policy, float]]
"""Policies that decided what a round's reports are about, and the share of the reports about each; empty: its own."""

__all__ = ["Bulk", "Schedule", "Step"]


class Schedule:
    """The rounds of one experiment.

    A round is opened, takes reports, and is closed with what its mechanism releases; or it is missed, and nothing is
    released of it. The experiment is finished when a step asks nobody (``batch`` 0).

    spec: the experiment's spec.
    """

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self.learner: Learner = learner_for(spec)  # the experiment's learner; it is made once

    @cached_property
    def encoded(self) -> bytes:
        """The spec as publications carry it."""
        return self.spec.model_dump_json().encode()

    def open(self, seed: int, version: int = 1, begun: Any = None) -> Step:
        """Open the first round.

        seed: public, 63 bits.
        begun: the state to begin with, if it is not that before any report.
        """
        return self.learner.next(self.learner.start(seed) if begun is None else begun, version, seed)

    def close(self, step: Step, release: Any, seed: int, version: int | None = None, decided: Decided = ()) -> Step:
        """Learn from a round's release, and open the next one; by default it has the next version."""
        return self.follow(self.learned(step, release, decided), self._after(step, version), seed)

    def miss(self, step: Step, seed: int, version: int | None = None, *, again: bool) -> Step:
        """Open the round after one of which nothing is released; ``again``: it asks other people the same."""
        return self.follow(self.missed(step, again=again), self._after(step, version), seed)

    def learned(self, step: Step, release: Any, decided: Decided = ()) -> Any:
        """Return the state after a round's release, with reports on what these policies ``decided``."""
        policy = step.policy.followed(decided) if decided else step.policy
        return self.learner.learn(step.state, policy, release)

    def missed(self, step: Step, *, again: bool) -> Any:
        """Return the state after a round of which nothing is released; ``again``: other people are asked the same."""
        return self.learner.miss(step.state, step.policy, again=again)

    def follow(self, state: Any, version: int, seed: int, *, asks: bool = True) -> Step:
        """Open the round that a state leads to, or publish the best policy and ask nobody."""
        return (self.learner.next if asks else self.learner.last)(state, version, seed)

    def awaits(self, over: Step) -> bool:
        """Whether people who chose earlier have not reported yet when a step has no place for their reports.

        It asks nobody, or those who measure the gain. Where people are drawn a round waits for its own.
        """
        window, is_drawn = self.spec.experiment.conversion_window, over.policy.draw is not None
        learns = over.batch > 0 and not isinstance(over.policy, GainPolicy)
        return bool(window) and not (learns or is_drawn or self.failed(over))

    def drain(self, over: Step, seed: int) -> Step:
        """Open one more round, as large as the first, before a step that has no place for late reports: for these.

        It asks nobody either where the learner has no use for more reports.
        """
        # It is the round that the learner would open if so many people were left.
        spec, known = self.spec.learning, self.learner.learned(over.state)
        # Those who measured the gain before, of a shorter experiment, are none of the learner's people.
        seen = over.seen if spec is self.spec else learner_for(spec).last(known, over.policy.version, seed).seen
        experiment = spec.experiment.model_copy(update={"horizon": seen + self.spec.first_batch("")})
        learner = learner_for(spec.model_copy(update={"experiment": experiment}))
        try:
            state = learner.changed(known, spec)
        except SpecError:  # what it finds holds for the people who were planned
            return replace(over, batch=0)
        late = learner.next(state, over.policy.version, seed)
        return replace(late, state=self.learner.relearned(over.state, late.state), seen=over.seen)

    def _after(self, step: Step, version: int | None) -> int:
        return step.policy.version + 1 if version is None else version

    def failed(self, step: Step) -> bool:
        """Whether the experiment is over because a round came to no end."""
        return self.learner.failed(step.state)

    def answer(self, step: Step) -> Answer:
        """Return what the experiment had found when this step opened."""
        return self.learner.answer(step.state)
