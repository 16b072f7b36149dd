"""The spec of a phased experiment (paper 5): a central entity plays actions that affect everybody, and asks some."""

import math
from typing import Annotated, Final, Literal

from pydantic import Field, model_validator

from privateer.actions import Actions
from privateer.errors import SpecError
from privateer.experiment import Model, Reward
from privateer.sections import Section

_NAME: Final = r"^[a-z0-9][a-z0-9-]{0,62}$"
_DELTA_MIN: Final = {"shuffle": 1e-15, "central": 1e-8, "local": 0.0, "none": 0.0}
_SHUFFLE_EPSILON_MAX: Final = 15.0
"""Of the published theorem."""
_UNIT_MAX: Final = 1e50
"""Rewards may have any unit whose squares, and theirs, are numbers."""
_PEOPLE_MAX: Final = 100_000_000
Positive = Annotated[float, Field(gt=0, le=_PEOPLE_MAX, allow_inf_nan=False)]


class PhasedExperiment(Section):
    """What is asked, and of how many.

    Attributes
    ----------
    name
        Lower-case letters, digits and dashes.
    horizon
        Times that an action is played, T.
    people
        The population from which every phase draws others.
    """

    name: str = Field(pattern=_NAME)
    horizon: int = Field(ge=1, le=10_000_000_000)
    people: int = Field(ge=1, le=_PEOPLE_MAX)


class VectorPrivacy(Section):
    """The promise to one person, who is asked in one phase at most, under the trust model.

    Attributes
    ----------
    model, epsilon
        As in `privateer.experiment.Privacy`.
    delta
        0 under ``none``; may be above 0 under ``local``.
    calibration
        ``tight``, or ``published``: paper 5's Theorems 1 and 2, and eq. (22) under shuffle.
    min_batch
        Under shuffle, the fewest reports that the shuffler releases together: at most the first phase's clients.
    honest_fraction
        Under shuffle, the share of a phase's clients whose noise the promise counts on.
    """

    model: Model
    epsilon: float | None = Field(default=None, gt=0, le=16, allow_inf_nan=False)
    delta: float = Field(default=0.0, ge=0, lt=0.5, allow_inf_nan=False)
    calibration: Literal["tight", "published"] = "tight"
    min_batch: int = Field(default=1000, ge=1, le=1_000_000)
    honest_fraction: float = Field(default=0.9, gt=0, le=1, allow_inf_nan=False)

    @model_validator(mode="after")
    def _consistent(self) -> "VectorPrivacy":
        if (self.epsilon is None) != (self.model == "none"):
            raise _refused("epsilon", "must be given, except under the model 'none'", "add it, or remove it")
        if self.model == "none" and self.delta != 0:
            raise _refused("delta", "must be 0 under the model 'none', which promises nothing", "remove it")
        if self.delta < _DELTA_MIN[self.model]:
            least = f"{_DELTA_MIN[self.model]:g}"
            raise _refused("delta", f"must be at least {least} under the {self.model} model", "1e-6 is usual")
        if self.calibration == "published":
            self._check_published()
        return self

    def _check_published(self) -> None:
        if self.model == "none":
            raise _refused("calibration", "there is nothing to calibrate under the model 'none'", "remove it")
        if self.delta == 0:
            raise _refused("delta", "must be above 0: the published noise is normal", "1e-6 is usual")
        if self.model == "shuffle" and self.bound > _SHUFFLE_EPSILON_MAX:
            most = f"{_SHUFFLE_EPSILON_MAX:g}"
            raise _refused("epsilon", f"must be at most {most} in the published theorem", "lower it, or use 'tight'")

    @property
    def bound(self) -> float:
        """Epsilon of the promise, infinite if there is none."""
        return math.inf if self.epsilon is None else self.epsilon


class PhasedAlgorithm(Section):
    """Distributed phased elimination (paper 5, Algorithm 1).

    Attributes
    ----------
    alpha
        Phase l asks 2^(alpha l) clients, in (0, 1).
    beta
        Chance that one comparison of two actions fails in one phase; 1 / (actions * horizon) if not given.
    client_deviation
        sigma: how much people's parameters differ, in the units of rewards for an action of length 1.
    clients
        Factor of the clients of every phase.
    fixed_clients
        Every phase asks so many instead: the paper's DPE-FixedU, for comparison.
    """

    name: Literal["phased"]
    alpha: float = Field(default=0.8, allow_inf_nan=False)
    beta: float | None = Field(default=None, ge=1e-300, lt=1, allow_inf_nan=False)
    client_deviation: float = Field(default=0.1, ge=0, le=_UNIT_MAX, allow_inf_nan=False)
    clients: Positive = 1.0
    fixed_clients: int | None = Field(default=None, ge=1, le=_PEOPLE_MAX)

    @model_validator(mode="after")
    def _alpha(self) -> "PhasedAlgorithm":
        if not 0 < self.alpha < 1:
            raise SpecError(
                "must be above 0 and below 1", field="algorithm.alpha", remedy="0.8 is usual; more asks more people"
            )
        return self


class Asking(Section):
    """How long a phase waits for people's reports, and what becomes of one that does not fill. For services alone.

    Attributes
    ----------
    seconds
        After which a phase that is short of its people is closed or put off; None: it waits for them.
    when_short
        ``extend``: it waits so long again, ``extensions`` times at most. ``reduce``: it closes with those who
        reported, if they are ``least_share`` of its people; noise is for so many from the start. ``fail``: the
        experiment ends with what it knew before. A phase that is short even then fails too.
    extensions
        Times that a phase is put off.
    least_share
        Of a phase's people.
    reserve
        People asked for each report that is wanted, since not everybody answers.
    """

    seconds: int | None = Field(default=None, ge=1, le=31_536_000)
    when_short: Literal["extend", "reduce", "fail"] = "extend"
    extensions: int = Field(default=3, ge=0, le=1000)
    least_share: float = Field(default=0.5, ge=1e-9, le=1, allow_inf_nan=False)
    reserve: float = Field(default=1.0, ge=1, le=1000, allow_inf_nan=False)

    @model_validator(mode="after")
    def _all_in_use(self) -> "Asking":
        for name in ("when_short", "extensions", "least_share"):
            if self.seconds is None and getattr(self, name) != type(self).model_fields[name].default:
                raise SpecError(
                    "does nothing without asking.seconds", field=f"asking.{name}", remedy="set that, or remove this"
                )
        return self

    @property
    def patience(self) -> int:
        """Seconds after which a phase that is short fails; 0: never."""
        return (self.seconds or 0) * (1 + (self.extensions if self.when_short == "extend" else 0))


class PhasedPopulation(Section):
    """Simulated people with linear rewards: theta uniform on the unit sphere, everybody's own close to it.

    Attributes
    ----------
    scale
        Length of theta, in units of half the range of rewards.
    """

    name: Literal["linear"]
    scale: Positive = 1.0


class PhasedSpec(Section):
    """A whole phased experiment."""

    experiment: PhasedExperiment
    actions: Actions
    reward: Reward
    privacy: VectorPrivacy
    algorithm: PhasedAlgorithm
    asking: Asking = Asking()
    population: PhasedPopulation | None = None

    @model_validator(mode="after")
    def _possible(self) -> "PhasedSpec":
        self._check_unit()
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
        if self.privacy.model == "shuffle":
            self._check_batches()
        return self

    def _check_unit(self) -> None:
        if not 1 / _UNIT_MAX <= self.half_range <= _UNIT_MAX:
            raise SpecError(
                f"less reward.low must be {2 / _UNIT_MAX:g} to {2 * _UNIT_MAX:g}",
                field="reward.high",
                remedy="choose another unit",
            )

    def _check_batches(self) -> None:
        first, privacy = self.least(self.clients(1)), self.privacy
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
    def half_range(self) -> float:
        """B: rewards are within so much of the middle of their range."""
        return (self.reward.high - self.reward.low) / 2

    @property
    def middle(self) -> float:
        """The middle of the range of rewards."""
        return (self.reward.high + self.reward.low) / 2

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
        """Chance that one comparison fails."""
        return self.algorithm.beta or 1 / (self.actions.shape[0] * self.experiment.horizon)

    @property
    def least_share(self) -> float:
        """Share of a phase's people with whom it may close: 1 unless it may be reduced."""
        asking = self.asking
        return asking.least_share if asking.seconds and asking.when_short == "reduce" else 1.0

    def least(self, clients: int) -> int:
        """Fewest of a phase's ``clients`` from whom anything is learned."""
        return math.ceil(self.least_share * clients)

    def asked(self, clients: int) -> int:
        """People who are asked so that ``clients`` of them report."""
        return math.ceil(self.asking.reserve * clients)

    def without_people(self) -> "PhasedSpec":
        """As it is, without the simulated people, whom a service has no use for."""
        return self.model_copy(update={"population": None})

    def clients(self, phase: int) -> int:
        """People from whom a phase learns, from phase 1 on."""
        growing = math.ceil(self.algorithm.clients * 2 ** (self.algorithm.alpha * phase))
        return self.algorithm.fixed_clients or growing


def _refused(field: str, detail: str, remedy: str) -> SpecError:
    return SpecError(detail, field=f"privacy.{field}", remedy=remedy)
