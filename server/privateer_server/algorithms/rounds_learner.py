"""The base of all learners: pure functions, round by round, from a state and a release to a state."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar, cast

from privateer_core.answer import Answer
from privateer_core.answer.measured_rate import MeasuredRate
from privateer_core.errors import SpecError
from privateer_core.policies.expected_rewards import ExpectedRewards
from privateer_core.policies.policy import Policy
from privateer_core.primitives.questions import Question
from privateer_core.privacy.terms import Terms, calibrate, nobody_asked
from privateer_core.spec.arms import ArmsSpec, PlannedRound
from privateer_core.spec.spec import Spec
from privateer_server.conclusions.rules import prospect_of


@dataclass(frozen=True)
class Step:
    """A round as a learner opens it.

    Attributes
    ----------
    state, policy
        The learner's state, and the policy that lives for the round.
    batch
        People whose reports close it; 0: the experiment is over.
    seen
        People of the same cohort whose reports opened in earlier rounds.
    least
        Fewest people with whom it may close after ``seconds``.
    seconds
        Seconds from its opening to its deadline; 0: it has no deadline.
    """

    state: Any
    policy: Policy
    batch: int
    seen: int = 0
    least: int = 0
    seconds: int = 0


class Bulk(NamedTuple):
    """The size of a round: its people, the messages of each, and the bytes of one before it is sealed."""

    people: int
    messages: int
    size: int


@dataclass(frozen=True)
class NewRound:
    """A round to come, for which a learner makes a policy.

    Attributes
    ----------
    version
        Of its policy.
    seed
        Public, of its own.
    batch
        People who are asked; 0: nobody, so that everybody gets what is best as far as is known.
    cohort
        Who is asked: a source's name; empty for the experiment's own people.
    """

    version: int
    seed: int
    batch: int = 0
    cohort: str = ""


SpecT = TypeVar("SpecT", bound=Spec)
StateT = TypeVar("StateT")
PolicyT = TypeVar("PolicyT", bound=Policy)


class RoundsLearner(ABC, Generic[SpecT, StateT, PolicyT]):
    """A learner in rounds. Its states are frozen dataclasses that travel by `privateer_core.codec`.

    A subclass has ``state_type``, `start`, `policy` and `learn`, and `answer` if it finds more than its policies. Its
    states have ``reported``, the people of this experiment whose reports opened, or it has a `planned_round` and an
    `anew` of its own.

    Attributes
    ----------
    state_type
        The class of its states.
    repeats
        Whether a shuffled round of which too few reports opened asks other people; else it takes another batch.
    publishes_result
        Whether publications carry its answer; else their policies are the answer, and devices need no more.
    growth
        Key of the spec that makes rounds large, and words for what else does.
    same
        What an experiment must have in common with the one that it begins with: fields of the spec, by dotted names.
    """

    state_type: type[Any]
    repeats: bool = False
    publishes_result: bool = True
    growth: tuple[str, str] = ("experiment.round_growth", "the people in all")
    same: ClassVar[tuple[str, ...]] = ("algorithm", "experiment.arms", "experiment.retired", "context", "reward")

    def __init__(self, spec: SpecT) -> None:
        self.spec = spec

    @abstractmethod
    def start(self, seed: int) -> StateT:
        """Return the state before any report; ``seed``, 63 bits, is public.

        Raises
        ------
        SpecError
            If nothing could be learned as the spec has it.
        """

    @abstractmethod
    def policy(self, state: StateT, ahead: NewRound) -> PolicyT:
        """Return the policy of a round to come; its terms are those of `terms`.

        Raises
        ------
        SpecError
            If no terms keep the promise.
        """

    @abstractmethod
    def learn(self, state: StateT, policy: PolicyT, release: Any) -> StateT:
        """Return the state after a round's release."""

    def answer(self, state: StateT) -> Answer:
        """Return what has been found so far: here how many people reported, and that the policy is all else."""
        return self.answered(state)

    def answered(self, state: StateT, **found: Any) -> Answer:
        """Return an answer that says where the learner is, with fields of `Answer` for what was ``found``."""
        is_over = self.over(state)
        where = {
            "status": "ended" if is_over else "learning",
            "people": cast(Any, state).reported,
            "rounds": None,
            "confidence": None,
            "ended": ("its rule" if self.stopped(state) else "its horizon") if is_over else None,
            "warnings": self.warnings(state),
        }
        return Answer(**(where | found))

    def expected(self, state: StateT) -> ExpectedRewards | None:
        """Return what is expected of options by context, which rules for whom are made from.

        None: nothing is known, or the algorithm does not choose by people's features.
        """
        del state
        return None

    def single_option(self, state: StateT, policy: PolicyT) -> int | None:
        """Return the option that is best if everybody gets the same, as far as is known; None: nobody knows.

        Parameters
        ----------
        policy
            The best policy so far, which asks nobody.
        """
        expected = self.expected(state)
        if expected is None:
            return None
        spec = cast(ArmsSpec, self.spec)
        within = expected.within(spec.reward.low, spec.reward.high)
        return prospect_of(spec.features, within, policy, spec.playable).constant

    def learned(self, state: Any) -> Any:
        """Return what an experiment of another spec may begin with: the state of a learner of its algorithm."""
        return state

    def relearned(self, state: StateT, learned: Any) -> StateT:
        """Return the state with another one instead of what `learned` returns of it."""
        del state
        return cast(StateT, learned)

    def warnings(self, state: StateT) -> tuple[str, ...]:
        """Return what to look at before anybody acts on the answer: a declared mean reward that is far from reports."""
        measured = self.measured_rate(state)
        return measured.warnings(self.spec.reward) if measured else ()

    def measured_rate(self, state: StateT) -> MeasuredRate | None:
        """Return the mean reward that releases tell; None: they tell none, or not alone."""
        del state
        return None

    def planned_round(self, state: StateT) -> PlannedRound:
        """Return which cohort is asked next, and how many people: what did not open takes nobody's place."""
        return cast(ArmsSpec, self.spec).next_round("", cast(Any, state).reported)

    def out_of_reach(self, state: StateT) -> int:
        """Return how many people no round to come can ask."""
        planned = self.planned_round(state)
        return self.spec.out_of_reach(planned.cohort, planned.seen)

    def stopped(self, state: StateT) -> bool:
        """Whether a rule has ended the experiment, no matter who is left to ask."""
        del state
        return False

    def over(self, state: StateT) -> bool:
        """Whether nobody is asked any more."""
        return self.stopped(state) or not self.planned_round(state).batch

    def terms(self, ahead: NewRound, question: Question) -> Terms:
        """Return how reports of a round are randomized that asks this.

        Raises
        ------
        SpecError
            If no terms keep the promise.
        """
        spec, batch = self.spec, ahead.batch
        promise = spec.privacy_of(ahead.cohort)
        if not batch:
            return nobody_asked(promise, question)
        return calibrate(promise, batch, question, spec.fewest(batch), spec.reports)

    def next(self, state: StateT, version: int, seed: int) -> Step:
        """Return the round that a state leads to, with a public seed of its own; of nobody if the experiment is over.

        Raises
        ------
        SpecError
            If no terms keep the promise.
        """
        planned = self.planned_round(state)
        batch = 0 if self.stopped(state) else planned.batch
        return self._opened(state, NewRound(version, seed, batch, planned.cohort), planned.seen)

    def last(self, state: StateT, version: int, seed: int) -> Step:
        """Return the step that asks nobody and has the best policy so far: of a pause, or for good."""
        return self._opened(state, NewRound(version, seed), self.planned_round(state).seen)

    def _opened(self, state: StateT, ahead: NewRound, seen: int) -> Step:
        policy, seconds = self.policy(state, ahead), self.spec.round_seconds
        batch = policy.terms.batch
        if not (batch and seconds):
            return Step(state, policy, batch, seen)
        return Step(state, policy, batch, seen, self.spec.fewest(batch), seconds)

    def miss(self, state: StateT, policy: PolicyT, *, again: bool) -> StateT:
        """Return the state after a round of which nothing is released; ``again``: other people are asked the same."""
        del policy, again
        return state

    def failed(self, state: StateT) -> bool:
        """Whether a round came to no end, so that the experiment is over."""
        del state
        return False

    def changed(self, state: StateT, before: SpecT) -> StateT:
        """Return the state under this learner's spec, when the experiment's was ``before`` until now.

        The horizon may have grown, arms may have been added at the end or retired; nothing else differs.

        Raises
        ------
        SpecError
            If the algorithm cannot do that while an experiment runs; names the field and says what to do instead.
        """
        if (before.options, before.retired) == (self.spec.options, self.spec.retired):
            return state
        return self.rearmed(state, before)

    def rearmed(self, state: StateT, before: SpecT) -> StateT:
        """Return the state when arms were added, of which nothing is known, or retired.

        Raises
        ------
        SpecError
            If that cannot be while an experiment runs, as here.
        """
        del state
        field = "experiment.arms" if before.options != self.spec.options else "experiment.retired"
        detail, remedy = "what is known is about the arms of the start", "stop it, and create another with these arms"
        raise SpecError(detail, field=field, remedy=remedy)

    def begun(self, state: StateT, before: SpecT) -> StateT:
        """Return the state of a new experiment that begins with what another one, of the spec ``before``, has learned.

        Raises
        ------
        SpecError
            If the other one says nothing about this learner's spec; names the field that differs.
        """
        must_agree(before, self.spec, self.same)
        return self.anew(state)

    def anew(self, state: StateT) -> StateT:
        """Return the state with the same evidence, in which nobody of this experiment has reported."""
        return cast(StateT, replace(cast(Any, state), reported=0))

    def bulk(self, first: Step) -> list[Bulk]:
        """Return what the largest rounds carry at most."""
        terms = first.policy.terms
        return [Bulk(cast(ArmsSpec, self.spec).largest_batch(), terms.messages, terms.mechanism.report_size)]

    def figures(self, state: StateT) -> dict[str, float]:
        """Return figures of a state that simulations average."""
        del state
        return {}


def must_agree(before: Spec, after: Spec, fields: tuple[str, ...]) -> None:
    """Refuse to begin an experiment with what one of another spec has learned, if a field of their specs differs.

    Parameters
    ----------
    before, after
        The two specs.
    fields
        Dotted names.

    Raises
    ------
    SpecError
        Naming the first field that differs.
    """
    for field in fields:
        if _at(before, field) != _at(after, field):
            detail = "differs from that of the experiment to begin with"
            raise SpecError(detail, field=field, remedy="make it the same, or begin without it")


def _at(spec: Spec, field: str) -> Any:
    value: Any = spec
    for name in field.split("."):
        value = getattr(value, name, None)
    # Mappings of features are in order.
    return list(value.items()) if isinstance(value, dict) else value
