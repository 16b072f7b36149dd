"""How experiments go from round to round: a course for each family, with the same methods."""

import math
import secrets
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from privateer.algorithms.partition import PartitionPolicy
from privateer.algorithms.phased import PhasedPolicy
from privateer.errors import SpecError
from privateer.experiment import Spec, Turn, next_turn
from privateer.families import AnySpec
from privateer.mechanisms.vector_terms import calibrate_vectors
from privateer.phased import PhasedSpec
from privateer_server.algorithms import learner_for
from privateer_server.algorithms.phased import PhasedLearner, PhasedState

_MORE: Final = 1.5
"""Actions that a later phase plays by those of the first; up to 1.34 was seen."""


@dataclass(frozen=True)
class Step:
    """What a round is made of.

    Attributes
    ----------
    policy, state
        The policy that lives for the round, and the learner state that made it.
    batch
        People whose reports close it; 0: the experiment is over.
    people
        People of the same cohort whose reports opened in earlier rounds.
    least
        Fewest people with whom it may close after ``seconds``.
    seconds
        From its opening to its deadline; 0: there is none.
    """

    policy: Any
    state: Any
    batch: int
    people: int = 0
    least: int = 0
    seconds: int = 0


class Bulk(NamedTuple):
    """What a round carries: its people, the messages of each, and the bytes of one before it is sealed."""

    people: int
    messages: int
    size: int


class PartitionSchedule:
    """Rounds of the partition family: their sizes are fixed by the spec, cohort by cohort."""

    policy_type: type[Any] = PartitionPolicy
    repeats: Final = False
    """A shuffled round of which too few reports opened waits for another batch."""

    def __init__(self, spec: Spec) -> None:
        self._spec = spec
        self.learner = learner_for(spec)

    def first(self, version: int = 1) -> Step:
        """The first round of the first cohort."""
        return self._step(self.learner.start(), version, next_turn(self._spec, None))

    def following(self, closed: Step, state: Any, received: int, version: int) -> Step:
        """The next turn, after ``received`` reports that opened: what does not open takes nobody's place."""
        turn = next_turn(self._spec, Turn(closed.policy.cohort, closed.people, closed.batch), received)
        return self._step(state, version, turn)

    def _step(self, state: Any, version: int, turn: Turn) -> Step:
        policy = self.learner.policy(state, version, turn.batch, secrets.randbits(64), turn.cohort)
        return Step(policy, state, turn.batch, turn.seen)

    def missed(self, closed: Step, *, again: bool) -> Any:
        """The state as it was: other people report in the next round."""
        del again
        return closed.state

    def failed(self, _: Any) -> bool:
        """Never: a round waits for its people."""
        return False

    def bulk(self, first: Step) -> list[Bulk]:
        """The largest round of any cohort: at most growth times the people before it, both at most the cohort."""
        spec = self._spec
        growth, size = spec.experiment.round_growth, spec.experiment.round_size
        cohort = max([spec.experiment.horizon, *(source.people for source in spec.sources)])
        return [Bulk(max(size, math.floor(growth / (1 + growth) * cohort)), 1, first.policy.mechanism.report_size)]

    def summary(self, policy: PartitionPolicy) -> dict[str, Any]:
        """Cohort, bins, and how reports were randomized."""
        counts = {"bins": len(policy.depths), "undecided": len(policy.bins)}
        return {"cohort": policy.cohort, **counts, "terms": policy.terms}

    def described(self, policy: PartitionPolicy) -> dict[str, Any]:
        """With the names of arms."""
        return policy.describe(self._spec.experiment.arms)


class PhasedSchedule:
    """Rounds of the phased family are its phases; all draw their people from one order, whose seed is in the first."""

    policy_type: type[Any] = PhasedPolicy
    repeats: Final = True
    """A phase of which too few reports opened asks other people, since those who were asked have reported."""

    def __init__(self, spec: PhasedSpec) -> None:
        self._spec = spec
        self.learner = PhasedLearner(spec)

    def first(self, version: int = 1) -> Step:
        """The first phase, with the seed of all.

        Raises
        ------
        SpecError
            If the horizon has no room for it, so that nobody would be asked.
        """
        start = self.learner.start()
        if (least := self.learner.rounds(start)) > self._spec.experiment.horizon:
            raise SpecError(
                f"the first phase takes {least} rounds", field="experiment.horizon", remedy=f"raise it to {least}"
            )
        return self._step(start, version, secrets.randbits(63))

    def following(self, closed: Step, state: Any, _: int, version: int) -> Step:
        """The next phase, or the same once more; it asks other people."""
        return self._step(state, version, closed.policy.seed)

    def _step(self, state: Any, version: int, seed: int) -> Step:
        policy = self.learner.policy(state, version, self.learner.batch(state), seed)
        batch, seconds = policy.terms.batch, self._spec.asking.seconds
        if batch == 0 or seconds is None:
            return Step(policy, state, batch)
        return Step(policy, state, batch, least=self._spec.least(batch), seconds=seconds)

    def missed(self, closed: Step, *, again: bool) -> PhasedState:
        """The state from which the same phase asks other people (``again``), or failed: too few came in time."""
        return self.learner.repeat(closed.state, closed.policy) if again else self.learner.fail(closed.state)

    def failed(self, state: PhasedState) -> bool:
        """Whether a phase came to no end."""
        return state.failed

    def bulk(self, first: Step) -> list[Bulk]:
        """All phases, as if each but the first played `_MORE` times its actions: fewer are left, but may take more."""
        spec, rounds = self._spec, []
        played = first.policy.terms.coordinates
        later = min(spec.actions.shape[0], math.ceil(_MORE * played))
        for phase in range(1, spec.phases + 1):
            people = spec.clients(phase)
            told = (played if phase == 1 else later, spec.half_range, first.policy.seed)
            terms = calibrate_vectors(spec.privacy, people, *told, spec.least(people))
            rounds.append(Bulk(people, terms.messages, terms.privatizer().report_size))
        return rounds

    def summary(self, policy: PhasedPolicy) -> dict[str, Any]:
        """Actions left, people asked, and how reports were randomized."""
        return {"active": len(policy.active), "asked": policy.places, "terms": policy.terms}

    def described(self, policy: PhasedPolicy) -> dict[str, Any]:
        """Actions by their rows."""
        return policy.describe()


def schedule_for(spec: AnySpec) -> PartitionSchedule | PhasedSchedule:
    """The course of an experiment."""
    return PhasedSchedule(spec) if isinstance(spec, PhasedSpec) else PartitionSchedule(spec)
