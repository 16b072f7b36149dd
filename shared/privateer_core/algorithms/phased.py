"""Phased elimination (Li, Zhou and Ji 2024): one plays actions that affect everybody, and asks some people in phases.

Here are its spec and its policy: which actions a phase plays, who is asked, and what they contribute.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Final, Literal, Self, cast

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator
from typing_extensions import override

from privateer_core.algorithms import Algorithm
from privateer_core.answer.policy_view import PlayCounts, PolicyView, PublicDraw
from privateer_core.errors import InputError, SpecError
from privateer_core.mechanisms import VectorMechanism
from privateer_core.policies.decisions import Plays
from privateer_core.policies.policy import Policy
from privateer_core.primitives.bounded_vectors import BoundedVectors
from privateer_core.primitives.clipping import Ball
from privateer_core.primitives.public_coins import Draw
from privateer_core.primitives.questions import Question, VectorSum
from privateer_core.privacy.terms import Terms
from privateer_core.spec.actions import Actions
from privateer_core.spec.capabilities import Capabilities
from privateer_core.spec.experiment import ExperimentTable
from privateer_core.spec.features import BOUND_MAX
from privateer_core.spec.privacy import idle_default
from privateer_core.spec.reward import Reward, numbers_of
from privateer_core.spec.sections import Section, parse_section
from privateer_core.spec.spec import Spec, example_promises

_PEOPLE_MAX: Final = 100_000_000
Positive = Annotated[float, Field(gt=0, le=_PEOPLE_MAX, allow_inf_nan=False)]


class PhasedTable(ExperimentTable):
    """The ``[experiment]`` of a phased experiment; its horizon is the number of times that an action is played, T."""

    people: int = Field(ge=1, le=_PEOPLE_MAX)  # the population from which every phase draws others


class PhasedSection(Section):
    """The ``[algorithm]`` of distributed phased elimination (Li, Zhou and Ji 2024, Algorithm 1)."""

    name: Literal["phased"]
    alpha: float = Field(default=0.8, allow_inf_nan=False)  # phase l asks 2^(alpha l) clients, in (0, 1)
    # probability that one comparison of two actions fails in one phase; 1 / (actions * horizon) if not given
    beta: float | None = Field(default=None, ge=1e-300, lt=1, allow_inf_nan=False)
    # sigma: how much people's parameters differ, in the units of rewards for an action of length 1
    client_deviation: float = Field(default=0.1, ge=0, le=BOUND_MAX, allow_inf_nan=False)
    clients: Positive = 1.0  # factor of the clients of every phase
    # every phase asks so many instead: the paper's DPE-FixedU, for comparison
    fixed_clients: int | None = Field(default=None, ge=1, le=_PEOPLE_MAX)

    @model_validator(mode="after")
    def _alpha(self) -> Self:
        if not 0 < self.alpha < 1:
            detail, remedy = "must be above 0 and below 1", "0.8 is usual; more asks more people"
            raise SpecError(detail, field="algorithm.alpha", remedy=remedy)
        return self


class Asking(Section):
    """The ``[asking]``: how long services wait for a phase's reports, and what becomes of one that does not fill."""

    # seconds after which a phase that is short of its people is closed or put off; None: it waits for them
    seconds: int | None = Field(default=None, ge=1, le=31_536_000)
    # ``extend``: it waits so long again, ``extensions`` times at most. ``reduce``: it closes with those who reported,
    # if they are ``least_share`` of its people; noise is for so many from the start. ``fail``: the experiment ends with
    # what it knew before. A phase that is short even then fails too.
    when_short: Literal["extend", "reduce", "fail"] = "extend"
    extensions: int = Field(default=3, ge=0, le=1000)  # times that a phase is put off
    # the share of a phase's people with whom it may close
    least_share: float = Field(default=0.5, ge=1e-9, le=1, allow_inf_nan=False)
    # people asked for each report that is wanted, since not everybody answers
    reserve: float = Field(default=1.0, ge=1, le=1000, allow_inf_nan=False)

    @model_validator(mode="after")
    def _all_in_use(self) -> "Asking":
        for name in ("when_short", "extensions", "least_share"):
            if self.seconds is None and getattr(self, name) != type(self).model_fields[name].default:
                detail, remedy = "does nothing without asking.seconds", "set that, or remove this"
                raise SpecError(detail, field=f"asking.{name}", remedy=remedy)
        return self

    @property
    def patience(self) -> int:
        """Seconds after which a phase that is short fails; 0: never."""
        return (self.seconds or 0) * (1 + (self.extensions if self.when_short == "extend" else 0))


class PhasedSpec(Spec):
    """An experiment with phased elimination. A person is asked in one phase at most."""

    question: ClassVar[type[Question]] = VectorSum
    people_key: ClassVar[str] = "people"
    capabilities: ClassVar[Capabilities] = Capabilities(
        closes_early=True, idle_keys=frozenset({"arms", "local_epsilon_max"})
    )

    experiment: PhasedTable
    actions: Actions
    reward: Reward
    algorithm: PhasedSection  # type: ignore[assignment] # a section of its own, with the base's key
    asking: Asking = Asking()

    @model_validator(mode="after")
    def _possible(self) -> Self:
        self._check_in_use()
        self._check_window()
        if not self.phases:
            least = math.ceil(self.first_length)
            raise SpecError(
                f"a first phase takes {least} rounds", field="experiment.horizon", remedy=f"raise it to {least}"
            )
        needed = sum(self.asked(self.clients(phase)) for phase in range(1, self.phases + 1))
        if needed > self.experiment.people:
            raise SpecError(
                f"{self.phases} phases ask up to {needed} people, each once",
                field="experiment.people",
                remedy=f"raise it to {needed}, or lower experiment.horizon, algorithm.alpha, algorithm.clients "
                "or asking.reserve",
            )
        if self.privacy.trust.batched:
            self._check_batches()
        return self

    def _check_in_use(self) -> None:
        for name in sorted(self.capabilities.idle_keys):
            if getattr(self.privacy, name) != idle_default(name):
                raise SpecError("does nothing under this algorithm", field=f"privacy.{name}", remedy="remove it")

    def _check_window(self) -> None:
        """Refuse outcomes that may come when their phase is over: its key is destroyed then."""
        if self.asking.seconds and self.experiment.conversion_window > self.asking.seconds:
            detail = f"must be at most asking.seconds, {self.asking.seconds}: a phase takes reports no longer"
            raise SpecError(detail, field="experiment.conversion_window", remedy="lower it, or raise asking.seconds")

    def _check_batches(self) -> None:
        first, privacy = self.fewest(self.clients(1)), self.privacy
        if privacy.min_batch > first:
            factor = math.ceil(10 * privacy.min_batch / self.least_share / 2**self.algorithm.alpha) / 10
            raise SpecError(
                f"is {privacy.min_batch}, and the first phase may close with {first} people",
                field="privacy.min_batch",
                remedy=f"lower it to {first}, or raise algorithm.clients to {factor:g}",
            )
        if math.floor(privacy.honest_fraction * first) < 1:
            raise SpecError(
                f"leaves nobody of the {first} people with whom the first phase may close",
                field="privacy.honest_fraction",
                remedy="raise it, or algorithm.clients",
            )

    @property
    def first_length(self) -> float:
        """h_1 = 4 d ln ln d + 16, and 16 in up to two dimensions, where the logarithm fails."""
        dimension = self.actions.shape[1]
        return 4 * dimension * math.log(math.log(dimension)) + 16 if dimension > 2 else 16.0

    @property
    def phases(self) -> int:
        """Most phases that the horizon has room for: h_1 (2^phases - 1) rounds at least."""
        return int(math.log2(self.experiment.horizon / self.first_length + 1))

    @property
    def beta(self) -> float:
        """The probability that one comparison fails."""
        return self.algorithm.beta or 1 / (self.actions.shape[0] * self.experiment.horizon)

    @property
    def least_share(self) -> float:
        """Share of a phase's people with whom it may close: 1 unless it may be reduced."""
        asking = self.asking
        return asking.least_share if asking.seconds and asking.when_short == "reduce" else 1.0

    @property
    @override
    def smallest_batch(self) -> int:
        return self.fewest(self.clients(1))

    @property
    def patience(self) -> float:
        """Seconds after its opening when nobody waits for a phase any longer; 0: never."""
        return float(self.asking.patience)

    @property
    def round_seconds(self) -> int:
        """Seconds from a phase's opening to its deadline; 0: it has no deadline."""
        return self.asking.seconds or 0

    @property
    def options(self) -> tuple[str, ...]:
        """The actions' rows."""
        return tuple(map(str, range(self.actions.shape[0])))

    def first_batch(self, cohort: str) -> int:
        """Return the people from whom the first phase learns."""
        return 0 if cohort else self.clients(1)

    def usual_question(self) -> VectorSum:
        """Return a question about as many averages as there are dimensions: a design plays that many or a few more."""
        return VectorSum(Ball("max", self.reward.half_range, self.actions.shape[1]))

    def asked(self, clients: int) -> int:
        """Return people who are asked so that ``clients`` of them report."""
        return math.ceil(self.asking.reserve * clients)

    def clients(self, phase: int) -> int:
        """Return people from whom a phase learns, from phase 1 on."""
        growing = math.ceil(self.algorithm.clients * 2 ** (self.algorithm.alpha * phase))
        return self.algorithm.fixed_clients or growing

    @classmethod
    @override
    def instances(cls) -> dict[str, Self]:
        promises = {str(promise["model"]): promise for promise in example_promises()}
        wide = {
            name: promise | ({"epsilon": 4.0} if "epsilon" in promise else {}) for name, promise in promises.items()
        }
        made = {name: cls._instance(promise) for name, promise in wide.items()}
        made["local-normal"] = cls._instance({"model": "local", "epsilon": 1.0, "delta": 0.25})
        return made

    @classmethod
    def _instance(cls, privacy: Mapping[str, Any], honest_fraction: float = 0.6, **algorithm: Any) -> Self:
        batch = {"min_batch": 2, "honest_fraction": honest_fraction}
        data = {
            "experiment": {"name": "test", "horizon": 20_000, "people": 5_000},
            "actions": {"count": 30, "dimension": 4, "seed": 2},
            "reward": {"low": -1.0, "high": 1.0},
            "privacy": {**privacy, **batch},
            "algorithm": {"name": "phased", **algorithm},
        }
        return parse_section(cls, data)


Indices = NDArray[np.int64]


@dataclass(frozen=True)
class PhasedPolicy(Policy):
    """The policy of one phase (Li, Zhou and Ji 2024, Algorithm 1, lines 4 to 7)."""

    version: int  # the policy's version, from 1. It does not number phases, since a phase may take several rounds.
    active: Indices  # shape (a,), int64: rows of the actions that may still be the best, rising
    support: Indices  # shape (s,), int64: rows of the actions that are played, rising
    plays: Indices  # shape (s,), int64: how often each is played, T(x)
    # the public draw of the people who are asked: as many as reports are wanted, or more if not everybody answers
    draw: Draw = field()
    middle: float  # the middle of the range of rewards
    # how reports are randomized, and how many are wanted: 0 in the last phase, from which nothing is learned
    terms: Terms

    @property
    @override
    def timeless(self) -> bool:
        return False

    @property
    def rounds(self) -> int:
        """Length of the phase: how often any action is played."""
        return int(self.plays.sum())

    @property
    def mechanism(self) -> VectorMechanism:
        """What randomizes, adds up and releases the phase's vectors."""
        return cast(VectorMechanism, self.terms.mechanism)

    @override
    def fits(self, spec: PhasedSpec) -> bool:
        arrays = (self.active, self.support, self.plays)
        typed = all(array.dtype == np.int64 and array.ndim == 1 and len(array) for array in arrays)
        # Bytes without a draw are decoded to the default that policies without draws have.
        typed = typed and isinstance(self.mechanism, VectorMechanism) and isinstance(self.draw, Draw)
        return typed and self._consistent(spec.actions.shape[0]) and self._agrees(spec)

    def _consistent(self, actions: int) -> bool:
        rising = all(bool((np.diff(rows) > 0).all()) for rows in (self.active, self.support))
        within = int(np.min(self.active)) >= 0 and int(np.max(self.active)) < actions
        played = bool(np.isin(self.support, self.active).all()) and bool((self.plays >= 1).all())
        return rising and within and played and len(self.plays) == len(self.support) == self.mechanism.ball.coordinates

    def _agrees(self, spec: PhasedSpec) -> bool:
        draw, ball = self.draw, self.mechanism.ball
        drawn = 0 <= draw.seed < 1 << 63 and draw.start >= 0 and draw.start + draw.places <= draw.people
        asked = draw.people == spec.experiment.people and draw.places == spec.asked(self.terms.batch)
        bounded = ball.norm == "max" and self._bounded(ball, spec)
        return drawn and asked and bounded and self.middle == spec.reward.middle

    def _bounded(self, ball: Ball, spec: PhasedSpec) -> bool:
        """Whether averages are clipped where rewards end."""
        return ball.bound == spec.reward.half_range

    @override
    def decide(self, contexts: NDArray[np.float64], coins: NDArray[np.uint32]) -> Plays:
        return Plays(self.support, self.plays)

    @override
    def contribute(
        self, contexts: NDArray[np.float64], coins: NDArray[np.uint32], decisions: Plays, rewards: NDArray[np.float64]
    ) -> BoundedVectors:
        """Return everybody's average reward of each action played, less the middle of the range.

        The mechanism clips it to the range before anything else happens to it. Column j of ``rewards``, (n, s), has
        averages in the rewards' own units about action ``support[j]``.
        """
        if rewards.ndim != 2 or rewards.shape[1] != len(self.support):
            raise InputError(
                f"must be {len(self.support)} averages", field="rewards", remedy="report one for each action played"
            )
        return BoundedVectors(coins, rewards - self.middle)

    @override
    def shown(self, spec: PhasedSpec, decisions: Plays) -> dict[int, int]:
        """Return how often each action of the phase is played, by its row in the spec, from 0."""
        return dict(zip(self.support.tolist(), self.plays.tolist(), strict=True))

    @override
    def read(self, spec: PhasedSpec, reward: Any) -> tuple[NDArray[np.float64], bool]:
        """Read one person's averages by the rows of actions; also tell whether one is beyond the rewards' bounds."""
        averages = numbers_of(reward, self.support.tolist(), "averages", "see session.choose()")[None]
        return averages, bool(((averages < spec.reward.low) | (averages > spec.reward.high)).any())

    def view(self, spec: PhasedSpec) -> PolicyView:
        """Return the phase; actions are named by their rows, from 0."""
        plays = dict(zip(map(str, self.support.tolist()), self.plays.tolist(), strict=True))
        draw = PublicDraw(self.draw.seed, self.draw.start, self.draw.places)
        active = tuple(map(str, self.active.tolist()))
        return PolicyView(spec.algorithm.name, self.version, PlayCounts(plays, active, self.terms.batch, draw))


ALGORITHM: Final = Algorithm(PhasedSpec, PhasedPolicy)
