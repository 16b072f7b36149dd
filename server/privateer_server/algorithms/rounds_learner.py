"""The base of all learners: pure functions, round by round, from a state and a release to a state."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, Generic, NamedTuple, TypeVar, cast

from privateer_core.answer import Answer
from privateer_core.answer.estimates import MeasuredRate
from privateer_core.errors import SpecError
from privateer_core.policies.expected_rewards import ExpectedRewards
from privateer_core.policies.policy import Policy
from privateer_core.primitives.questions import Question
from privateer_core.privacy.terms import Terms, calibrate, uninvited_terms
from privateer_core.spec.arms import ArmsSpec, PlannedRound
from privateer_core.spec.spec import Spec
from privateer_server.conclusions.rules import forecast_rewards


@dataclass(frozen=True)
class Step:
    """A round as opened by a learner."""

    state: Any  # the learner's state
    policy: Policy  # the policy that lives for the round
    batch_size: int  # reports that close it; 0: the experiment is over
    n_reported: int = 0  # reports of the same cohort that opened in earlier rounds
    min_reports: int = 0  # reports with which it may close after ``seconds``
    seconds: int = 0  # from its opening to its deadline; 0: it has no deadline


class RoundVolume(NamedTuple):
    """The size of a round: its participants, the messages of each, and the bytes of a message as it is sent."""

    people: int
    messages: int
    size: int


@dataclass(frozen=True)
class NewRound:
    """A round that a learner makes a policy for."""

    version: int  # of its policy
    seed: int  # public, of its own
    batch_size: int = 0  # participants who are invited; 0: none, so that everybody gets the arm that seems best
    cohort: str = ""  # a source's name; empty for the experiment's own participants


SpecT = TypeVar("SpecT", bound=Spec)
StateT = TypeVar("StateT")
PolicyT = TypeVar("PolicyT", bound=Policy)


class RoundsLearner(ABC, Generic[SpecT, StateT, PolicyT]):
    """A learner in rounds. Its states are frozen dataclasses that travel by `privateer_core.codec`.

    A subclass has ``state_type``, `start`, `policy` and `learn`, and `answer` if it finds more than its policies. Its
    states have ``reported``, the people of this experiment whose reports opened, or it has a `planned_round` and an
    `keep_evidence_only` of its own.

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
    inherited_fields
        What an experiment must have in common with the one that it begins with: fields of the spec, by dotted names.
    """

    state_type: type[Any]
    repeats: bool = False
    publishes_result: bool = True
    growth: tuple[str, str] = ("experiment.min_round_fraction", "the people in all")
    inherited_fields: tuple[str, ...] = "algorithm", "experiment.arms", "experiment.retired_arms", "context", "reward"

    def __init__(self, spec: SpecT) -> None:
        self.spec = spec

    @abstractmethod
    def start(self, seed: int) -> StateT:
        """Return the state before any report; ``seed``, 63 bits, is public; `SpecError` if nothing could be learned."""

    @abstractmethod
    def policy(self, state: StateT, next_round: NewRound) -> PolicyT:
        """Return the policy of a round to come, by its `terms`; `SpecError` if no terms keep the promise."""

    @abstractmethod
    def learn(self, state: StateT, policy: PolicyT, release: Any) -> StateT:
        """Return the state after a round's release."""

    def answer(self, state: StateT) -> Answer:
        """Return the findings so far; by default the number of reports and the status."""
        return self.build_answer(state)

    def build_answer(self, state: StateT, **findings: Any) -> Answer:
        """Return an answer with the learner's status, and with ``findings`` as fields of `Answer`."""
        is_over = self.is_over(state)
        progress = {
            "stage": "ended" if is_over else "learning",
            "people": cast(Any, state).reported,
            "rounds": None,
            "confidence": None,
            "stop_reason": ("its rule" if self.has_stopped(state) else "its horizon") if is_over else None,
            "warnings": self.warnings(state),
        }
        return Answer(**(progress | findings))

    def build_expected_rewards(self, state: StateT) -> ExpectedRewards | None:
        """Return the expected rewards of options by context, or None without evidence or without features.

        Rules of recommendation are made from them.
        """
        del state
        return None

    def find_best_single_option(self, state: StateT, policy: PolicyT) -> int | None:
        """Return the option that is best if all participants get the same; None if unknown.

        ``policy`` is the best policy so far, of a round that invites no participants.
        """
        expected_rewards = self.build_expected_rewards(state)
        if expected_rewards is None:
            return None
        spec = cast(ArmsSpec, self.spec)
        clipped_rewards = expected_rewards.within(spec.reward.low, spec.reward.high)
        return forecast_rewards(spec.features, clipped_rewards, policy, spec.playable).best_constant

    def extract_learned_state(self, state: Any) -> Any:
        """Return the state from which an experiment of another spec can begin."""
        return state

    def replace_learned_state(self, state: StateT, learned_state: Any) -> StateT:
        """Return the state with the part replaced that `extract_learned_state` returns."""
        del state
        return cast(StateT, learned_state)

    def warnings(self, state: StateT) -> tuple[str, ...]:
        """Return warnings: a declared mean reward that is far from the measured one."""
        rate = self.measured_rate(state)
        return rate.warnings(self.spec.reward) if rate else ()

    def measured_rate(self, state: StateT) -> MeasuredRate | None:
        """Return the mean reward as measured by releases; None if they do not identify it."""
        del state
        return None

    def planned_round(self, state: StateT) -> PlannedRound:
        """Return the cohort and the number of participants of the next round, from the reports that opened."""
        return cast(ArmsSpec, self.spec).next_round("", cast(Any, state).reported)

    def count_unreachable(self, state: StateT) -> int:
        """Return the number of participants whom no later round can ask."""
        planned = self.planned_round(state)
        return self.spec.count_unreachable(planned.cohort, planned.n_reported)

    def has_stopped(self, state: StateT) -> bool:
        """Whether a stopping rule has ended the experiment."""
        del state
        return False

    def is_over(self, state: StateT) -> bool:
        """Whether no further round asks participants."""
        return self.has_stopped(state) or not self.planned_round(state).batch_size

    def calibrate_terms(self, next_round: NewRound, question: Question) -> Terms:
        """Return the terms that randomize reports on this question; `SpecError` if none keep the promise."""
        spec, batch = self.spec, next_round.batch_size
        promise = spec.cohort_privacy(next_round.cohort)
        if not batch:
            return uninvited_terms(promise, question)
        return calibrate(promise, batch, question, spec.min_reports(batch), spec.reports)

    def open_next_round(self, state: StateT, version: int, seed: int) -> Step:
        """Return the next round, with a public seed, or without participants at the end; `SpecError` if not private."""
        planned = self.planned_round(state)
        batch = 0 if self.has_stopped(state) else planned.batch_size
        return self._open_round(state, NewRound(version, seed, batch, planned.cohort), planned.n_reported)

    def open_idle_round(self, state: StateT, version: int, seed: int) -> Step:
        """Return a round that invites no participants, with the best policy so far, for a pause or for good."""
        return self._open_round(state, NewRound(version, seed), self.planned_round(state).n_reported)

    def _open_round(self, state: StateT, next_round: NewRound, n_reported: int) -> Step:
        """Return a round with its policy, and with a deadline if it invites participants and the spec sets one."""
        policy, seconds = self.policy(state, next_round), self.spec.round_seconds
        batch = policy.terms.batch_size
        if not (batch and seconds):
            return Step(state, policy, batch, n_reported)
        return Step(state, policy, batch, n_reported, self.spec.min_reports(batch), seconds)

    def learn_without_release(self, state: StateT, policy: PolicyT, *, is_repeated: bool) -> StateT:
        """Return the state after a round without a release; ``is_repeated``: other participants are asked the same."""
        del policy, is_repeated
        return state

    def has_failed(self, state: StateT) -> bool:
        """Whether the experiment is over because a round failed."""
        del state
        return False

    def apply_spec_change(self, state: StateT, old_spec: SpecT) -> StateT:
        """Return the state under this learner's spec, after a change of the experiment's spec.

        The horizon may have grown, arms may have been added at the end or retired; nothing else differs.

        Raises
        ------
        SpecError
            If the algorithm cannot do that while an experiment runs; names the field and says what to do instead.
        """
        if (old_spec.options, old_spec.retired) == (self.spec.options, self.spec.retired):
            return state
        return self.apply_arm_change(state, old_spec)

    def apply_arm_change(self, state: StateT, old_spec: SpecT) -> StateT:
        """Return the state after arms were added, without evidence, or retired; refuse that, as here, if impossible."""
        del state
        field = "experiment.arms" if old_spec.options != self.spec.options else "experiment.retired_arms"
        detail, remedy = "what is known is about the arms of the start", "stop it, and create another with these arms"
        raise SpecError(detail, field=field, remedy=remedy)

    def start_from_state(self, state: StateT, old_spec: SpecT) -> StateT:
        """Return the state of a new experiment with the evidence of another; refuse a field that differs, by name."""
        require_equal(old_spec, self.spec, self.inherited_fields)
        return self.keep_evidence_only(state)

    def keep_evidence_only(self, state: StateT) -> StateT:
        """Return the state with the same evidence, and no reports of this experiment."""
        return cast(StateT, replace(cast(Any, state), reported=0))

    def list_round_volumes(self, first: Step) -> list[RoundVolume]:
        """Return the sizes of the largest rounds."""
        terms = first.policy.terms
        return [RoundVolume(cast(ArmsSpec, self.spec).largest_batch(), terms.messages, terms.mechanism.sealed_size)]

    def figures(self, state: StateT) -> dict[str, float]:
        """Return statistics of a state that simulations average."""
        del state
        return {}


def require_equal(old: Spec, new: Spec, fields: tuple[str, ...]) -> None:
    """Refuse to begin an experiment with evidence of another if their specs differ in any dotted field."""
    for field in fields:
        if _get_field(old, field) != _get_field(new, field):
            detail = "differs from that of the experiment to begin with"
            raise SpecError(detail, field=field, remedy="make it the same, or begin without it")


def _get_field(spec: Spec, field: str) -> Any:
    """Return the value of a dotted field, comparable with that of another spec; None if the spec has no such field."""
    value: Any = spec
    for name in field.split("."):
        value = getattr(value, name, None)
    # Mappings of features are in order.
    return list(value.items()) if isinstance(value, dict) else value
