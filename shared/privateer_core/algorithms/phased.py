"""Spec and policy of distributed phased elimination (Li, Zhou and Ji 2024).

Actions affect the whole population. In each phase a public sample of it reports on the actions that are played.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Final, Literal, Self, cast

import numpy as np
from pydantic import Field, model_validator
from typing_extensions import override

from privateer_core.algorithms import Algorithm
from privateer_core.answer.policy_view import PlayCounts, PolicyView, PublicDraw
from privateer_core.arrays import Array, Coins, Ints
from privateer_core.errors import InputError, SpecError
from privateer_core.mechanisms import VectorMechanism
from privateer_core.policies.policy import Plays, Policy
from privateer_core.primitives.bounded_vectors import BoundedVectors
from privateer_core.primitives.clipping import Ball
from privateer_core.primitives.public_coins import Draw
from privateer_core.primitives.questions import Question, VectorSum
from privateer_core.privacy.terms import Terms
from privateer_core.privacy.trust import Crowd
from privateer_core.spec.actions import Actions
from privateer_core.spec.experiment import ExperimentTable
from privateer_core.spec.features import BOUND_MAX
from privateer_core.spec.privacy import default_of_idle_key
from privateer_core.spec.reward import Reward, read_numbers
from privateer_core.spec.sections import Section, parse_section
from privateer_core.spec.spec import Capabilities, Spec, example_promises

_PEOPLE_MAX: Final = 100_000_000
PositiveFloat = Annotated[float, Field(gt=0, le=_PEOPLE_MAX, allow_inf_nan=False)]


class PhasedTable(ExperimentTable):
    """The ``[experiment]`` of a phased experiment; its horizon is the number of times that an action is played, T."""

    participants: int = Field(ge=1, le=_PEOPLE_MAX)  # the population from which every phase draws others


class PhasedSection(Section):
    """The ``[algorithm]`` of distributed phased elimination (Li, Zhou and Ji 2024, Algorithm 1)."""

    name: Literal["phased"]
    alpha: float = Field(default=0.8, allow_inf_nan=False)  # phase l has 2^(alpha l) clients, in (0, 1)
    # sigma: standard deviation of participants' parameters, in the units of rewards for an action of length 1
    participant_standard_deviation: float = Field(default=0.1, ge=0, le=BOUND_MAX, allow_inf_nan=False)
    participants_factor: PositiveFloat = 1.0  # factor of the clients of every phase

    @model_validator(mode="after")
    def _check_alpha(self) -> Self:
        """Refuse an exponent outside of (0, 1)."""
        if not 0 < self.alpha < 1:
            detail, remedy = "must be above 0 and below 1", "0.8 is usual; more asks more people"
            raise SpecError(detail, field="algorithm.alpha", remedy=remedy)
        return self


class RecruitmentSection(Section):
    """The ``[recruitment]``: timeout of a phase's reports, and the rules for a phase that has too few."""

    # seconds after which a phase with too few reports is closed or extended; None: it waits without limit
    timeout_seconds: int | None = Field(default=None, ge=1, le=31_536_000)
    # the minimum share of a phase's participants with which it may close then; noise is calibrated to it
    min_response_rate: float = Field(default=1.0, ge=1e-9, le=1, allow_inf_nan=False)
    # how often a phase with fewer reports is extended by as long. Then it fails: the experiment ends with its results.
    extensions: int = Field(default=3, ge=0, le=1000)
    # participants invited for each report that is required, since not all respond
    over_selection_factor: float = Field(default=1.0, ge=1, le=1000, allow_inf_nan=False)

    @model_validator(mode="after")
    def _check_idle_keys(self) -> "RecruitmentSection":
        """Refuse keys that have no effect without a timeout."""
        for name in ("extensions", "min_response_rate"):
            if self.timeout_seconds is None and getattr(self, name) != type(self).model_fields[name].default:
                detail, remedy = "does nothing without recruitment.timeout_seconds", "set that, or remove this"
                raise SpecError(detail, field=f"recruitment.{name}", remedy=remedy)
        return self


class PhasedSpec(Spec):
    """A spec of an experiment with phased elimination. A participant is invited in one phase at most."""

    question: ClassVar[type[Question]] = VectorSum
    people_key: ClassVar[str] = "participants"
    capabilities: ClassVar[Capabilities] = Capabilities(
        closes_early=True, idle_keys=frozenset({"arm_visibility", "local_epsilon_max"})
    )

    experiment: PhasedTable
    actions: Actions
    reward: Reward
    algorithm: PhasedSection  # type: ignore[assignment] # a section of its own, with the base's key
    recruitment: RecruitmentSection = RecruitmentSection()

    @model_validator(mode="after")
    def _check_spec(self) -> Self:
        """Refuse idle keys, a window beyond the timeout, and a horizon or population too small for the phases."""
        for name in sorted(self.capabilities.idle_keys):
            if getattr(self.privacy, name) != default_of_idle_key(name):
                raise SpecError("does nothing under this algorithm", field=f"privacy.{name}", remedy="remove it")
        timeout = self.recruitment.timeout_seconds
        # A phase's key is destroyed at its deadline.
        if timeout and self.experiment.conversion_window_seconds > timeout:
            detail = f"must be at most recruitment.timeout_seconds, {timeout}: a phase takes reports no longer"
            field, remedy = "experiment.conversion_window_seconds", "lower it, or raise recruitment.timeout_seconds"
            raise SpecError(detail, field=field, remedy=remedy)
        if not self.phases:
            minimum = math.ceil(self.first_phase_length)
            detail, remedy = f"a first phase takes {minimum} rounds", f"raise it to {minimum}"
            raise SpecError(detail, field="experiment.horizon", remedy=remedy)
        n_required = sum(self.count_invited(self.phase_size(phase)) for phase in range(1, self.phases + 1))
        if n_required > self.experiment.participants:
            detail = f"{self.phases} phases ask up to {n_required} people, each once"
            remedy = f"raise it to {n_required}, or lower experiment.horizon, algorithm.alpha, "
            remedy += "algorithm.participants_factor or recruitment.over_selection_factor"
            raise SpecError(detail, field="experiment.participants", remedy=remedy)
        if self.privacy.trust.crowd is Crowd.BATCH:
            self._check_batches()
        return self

    def _check_batches(self) -> None:
        """Refuse a batch, or honest reports, that the first phase may not reach."""
        min_first_batch, privacy = self.min_reports(self.phase_size(1)), self.privacy
        if privacy.min_batch > min_first_batch:
            factor = math.ceil(10 * privacy.min_batch / self.min_share / 2**self.algorithm.alpha) / 10
            detail = f"is {privacy.min_batch}, and the first phase may close with {min_first_batch} people"
            remedy = f"lower it to {min_first_batch}, or raise algorithm.participants_factor to {factor:g}"
            raise SpecError(detail, field="privacy.min_batch", remedy=remedy)
        if math.floor(privacy.honest_fraction * min_first_batch) < 1:
            detail = f"leaves nobody of the {min_first_batch} people with whom the first phase may close"
            remedy = "raise it, or algorithm.participants_factor"
            raise SpecError(detail, field="privacy.honest_fraction", remedy=remedy)

    @property
    def first_phase_length(self) -> float:
        """h_1 = 4 d ln ln d + 16, and 16 in up to two dimensions, where the logarithm fails."""
        dimension = self.actions.shape[1]
        return 4 * dimension * math.log(math.log(dimension)) + 16 if dimension > 2 else 16.0

    @property
    def phases(self) -> int:
        """Maximum number of phases within the horizon, which take at least h_1 (2^phases - 1) rounds."""
        return int(math.log2(self.experiment.horizon / self.first_phase_length + 1))

    @property
    def comparison_failure_probability(self) -> float:
        """The probability that a comparison of two actions fails in a phase."""
        return 1 / (self.actions.shape[0] * self.experiment.horizon)

    @property
    def min_share(self) -> float:
        """Minimum share of a phase's participants with which it may close at its deadline."""
        return self.recruitment.min_response_rate

    @property
    @override
    def smallest_batch(self) -> int:
        return self.min_reports(self.phase_size(1))

    @property
    def failure_seconds(self) -> float:
        """Seconds from a phase's opening until it fails with too few reports; 0: never."""
        return float(self.round_seconds * (1 + self.recruitment.extensions))

    @property
    def round_seconds(self) -> int:
        """Seconds from a phase's opening to its deadline; 0: it has no deadline."""
        return self.recruitment.timeout_seconds or 0

    @property
    def options(self) -> tuple[str, ...]:
        """Names of the actions: their rows, from 0, or the coordinates of a box's points."""
        if self.actions.box:
            return self.actions.box.name_points()
        return tuple(map(str, range(self.actions.shape[0])))

    def first_batch(self, cohort: str) -> int:
        """Return the number of participants from whom the first phase learns."""
        return 0 if cohort else self.phase_size(1)

    def typical_question(self) -> VectorSum:
        """Return a question about an average per dimension: a design plays about as many actions."""
        return VectorSum(Ball("max", self.reward.half_range, self.actions.shape[1]))

    def count_invited(self, n_reports: int) -> int:
        """Return the number of participants to invite so that ``n_reports`` of them report."""
        return math.ceil(self.recruitment.over_selection_factor * n_reports)

    def phase_size(self, phase: int) -> int:
        """Return the number of participants from whom a phase learns; the first phase is 1."""
        return math.ceil(self.algorithm.participants_factor * 2 ** (self.algorithm.alpha * phase))

    @classmethod
    @override
    def instances(cls) -> dict[str, Self]:
        """Return a small instance of every trust model, and one of local reports with normal noise."""
        specs = {}
        for name, promise in example_promises(cls.question).items():
            specs[name] = cls._example(promise | dict.fromkeys({"epsilon"} & promise.keys(), 4.0))
        box = {"low": [0.1, -10.0], "high": [0.7, 3.3]}
        specs["box"] = cls._example(example_promises()["central"] | {"epsilon": 4.0}, actions=box)
        specs["local-normal"] = cls._example({"model": "local", "epsilon": 1.0, "delta": 0.25})
        return specs

    @classmethod
    def _example(
        cls,
        privacy: Mapping[str, Any],
        honest_fraction: float = 0.6,
        actions: Mapping[str, Any] = MappingProxyType({"count": 30, "dimension": 4, "seed": 2}),
        **algorithm: Any,
    ) -> Self:
        batch_keys = {"min_batch": 2, "honest_fraction": honest_fraction}
        data = {
            "experiment": {"name": "test", "horizon": 20_000, "participants": 5_000},
            "actions": dict(actions),
            "reward": {"low": -1.0, "high": 1.0},
            "privacy": {**privacy, **batch_keys},
            "algorithm": {"name": "phased", **algorithm},
        }
        return parse_section(cls, data)


@dataclass(frozen=True)
class PhasedPolicy(Policy):
    """The policy of a phase (Li, Zhou and Ji 2024, Algorithm 1, lines 4 to 7)."""

    version: int  # the policy's version, from 1. It does not number phases, since a phase may take several rounds.
    active: Ints  # shape (a,), int64: rows of the actions that may still be the best, rising
    support: Ints  # shape (s,), int64: rows of the actions that are played, rising
    plays: Ints  # shape (s,), int64: how often each is played, T(x)
    # the public sample of invited participants: as many as required reports, or more if not all respond
    draw: Draw = field()
    middle: float  # the middle of the range of rewards
    # how reports are randomized, and the number required: 0 in the last phase, from which nothing is learned
    terms: Terms

    is_policy_independent = False

    @property
    def rounds(self) -> int:
        """Length of the phase: the number of plays of all actions."""
        return int(self.plays.sum())

    @property
    def mechanism(self) -> VectorMechanism:
        """The mechanism that randomizes, sums and releases the phase's vectors."""
        return cast(VectorMechanism, self.terms.mechanism)

    @override
    def is_compatible(self, spec: PhasedSpec) -> bool:
        """Whether arrays, draw and mechanism have valid types, and agree with each other and with the spec."""
        arrays = (self.active, self.support, self.plays)
        has_types = all(array.dtype == np.int64 and array.ndim == 1 and len(array) for array in arrays)
        # Bytes without a draw are decoded to the default that policies without draws have.
        has_types = has_types and isinstance(self.mechanism, VectorMechanism) and isinstance(self.draw, Draw)
        return has_types and self._is_consistent(spec.actions.shape[0]) and self._is_of_spec(spec)

    def _is_consistent(self, n_actions: int) -> bool:
        """Whether rows of actions rise and exist, and only active actions are played, as often as stated."""
        are_rising = all(bool((np.diff(rows) > 0).all()) for rows in (self.active, self.support))
        are_in_range = int(np.min(self.active)) >= 0 and int(np.max(self.active)) < n_actions
        are_playable = bool(np.isin(self.support, self.active).all()) and bool((self.plays >= 1).all())
        has_sizes = len(self.plays) == len(self.support) == self.mechanism.ball.coordinates
        return are_rising and are_in_range and are_playable and has_sizes

    def _is_of_spec(self, spec: PhasedSpec) -> bool:
        """Whether the draw invites the planned number of the population, and rewards are clipped as in the spec."""
        draw, ball = self.draw, self.mechanism.ball
        is_valid = 0 <= draw.seed < 1 << 63 and draw.start >= 0 and draw.start + draw.places <= draw.people
        is_planned = draw.people == spec.experiment.participants and draw.places == spec.count_invited(
            self.terms.batch_size
        )
        is_valid = is_valid and is_planned and self._is_clipped_to_rewards(ball, spec)
        return is_valid and self.middle == spec.reward.middle

    def _is_clipped_to_rewards(self, ball: Ball, spec: PhasedSpec) -> bool:
        """Whether averages are clipped to the range of rewards."""
        return ball.bound == spec.reward.half_range

    @override
    def decide(self, contexts: Array, coins: Coins) -> Plays:
        return Plays(self.support, self.plays)

    @override
    def contribute(self, contexts: Array, coins: Coins, decisions: Plays, rewards: Array) -> BoundedVectors:
        """Return each participant's average reward of each action, less the range's middle; refuse another number.

        The mechanism clips it to the range before it randomizes it. Column j of ``rewards``, (n, s), has
        averages in the rewards' own units about action ``support[j]``.
        """
        if rewards.ndim != 2 or rewards.shape[1] != len(self.support):
            detail, remedy = f"must be {len(self.support)} averages", "report one for each action played"
            raise InputError(detail, field="rewards", remedy=remedy)
        return BoundedVectors(coins, rewards - self.middle)

    @override
    def present_decision(self, spec: PhasedSpec, decisions: Plays) -> dict[int, int]:
        """Return the number of plays of each action of the phase, by its row in the spec, from 0."""
        return dict(zip(self.support.tolist(), self.plays.tolist(), strict=True))

    @override
    def read(self, spec: PhasedSpec, reward: Any) -> tuple[Array, bool]:
        """Parse a participant's averages by rows of actions; also return whether any is beyond the rewards' bounds."""
        averages = read_numbers(reward, self.support.tolist(), "averages", "see session.choose()")[None]
        return averages, bool(((averages < spec.reward.low) | (averages > spec.reward.high)).any())

    def view(self, spec: PhasedSpec) -> PolicyView:
        """Return the phase's plays and draw, with the spec's names of actions."""
        names = spec.options
        plays = dict(zip((names[row] for row in self.support), self.plays.tolist(), strict=True))
        draw = PublicDraw(self.draw.seed, self.draw.start, self.draw.places)
        active = tuple(names[row] for row in self.active)
        return PolicyView(spec.algorithm.name, self.version, PlayCounts(plays, active, self.terms.batch_size, draw))


ALGORITHM: Final = Algorithm(PhasedSpec, PhasedPolicy)
