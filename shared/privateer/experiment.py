"""The specification of an experiment: what a TOML file says, and what everybody may read."""

import math
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from privateer.population import Population
from privateer.sections import Finite, parse_section, toml_tables
from privateer.sections import Section as _Section

ARMS_MIN, ARMS_MAX = 2, 16
FEATURES_MAX = 5
BATCH_MIN, BATCH_MAX = 100, 1_000_000
"""Of ``min_batch``."""
Model = Literal["local", "shuffle", "central", "none"]
_DELTA_MIN = {"shuffle": 1e-15, "central": 1e-8}
"""What the accountant certifies; under central the distance of drawn noise from the normal law must be small in it."""


class _Range(_Section):
    low: Finite
    high: Finite

    @model_validator(mode="after")
    def _can_be_scaled(self) -> Self:
        if not self.low < self.high:
            raise ValueError("the range is empty, low must be below high")
        if not math.isfinite(1 / (self.high - self.low)) or not math.isfinite(self.high - self.low):
            raise ValueError("the range is too wide or too narrow to be scaled to [0, 1]")
        return self


class Feature(_Range):
    """Bounds of one feature; a device clips to them and scales to [0, 1]."""


class Context(_Section):
    """The features of a context, in order."""

    features: dict[Annotated[str, Field(min_length=1, max_length=256)], Feature] = Field(
        min_length=1, max_length=FEATURES_MAX
    )


class Reward(_Range):
    """Bounds of a reward; a device clips to them and scales to [0, 1]."""

    low: Finite = 0.0
    high: Finite = 1.0


class Privacy(_Section):
    """The promise to one person under the trust model.

    Attributes
    ----------
    model
        ``local``: nobody is trusted. ``shuffle``: a shuffler that does not collude with the server. ``central``: the
        server, which sees records and adds noise to what it releases. ``none``: the server, which adds no noise.
    epsilon, delta
        The promise. Under ``local`` delta is 0 and every report is epsilon-private alone; under ``shuffle`` the
        promise is for the shuffled batch, and the epsilon of a report follows from it and the batch; under ``central``
        it is for what is published; under ``none`` there is none, and neither is given.
    arms
        ``seen``: the promise holds against somebody who also sees which arm each person got, e.g. because the arm's
        content is fetched over the network. ``hidden``: it counts on nobody seeing that. Under ``local`` both send the
        same reports (docs/privacy.md says what a seen arm adds there).
    calibration
        ``tight`` or ``published`` (Laplace noise for every bin and arm, as paper 1 says; in the lab only).
    min_batch
        Under shuffle, the fewest reports of a round.
    honest_fraction
        Under shuffle, the share of a batch that is assumed to send what the client library sends.
    local_epsilon_max
        Under shuffle, the most that a report may cost if shuffler and server collude.
    """

    model: Model
    epsilon: float | None = Field(default=None, gt=0, le=16, allow_inf_nan=False)
    delta: float = Field(default=0.0, ge=0, lt=0.5, allow_inf_nan=False)
    arms: Literal["seen", "hidden"] = "seen"
    calibration: Literal["tight", "published"] = "tight"
    min_batch: int = Field(default=1000, ge=BATCH_MIN, le=BATCH_MAX)
    honest_fraction: float = Field(default=0.9, gt=0, le=1, allow_inf_nan=False)
    local_epsilon_max: float = Field(default=4.0, gt=0, le=16, allow_inf_nan=False)

    @model_validator(mode="after")
    def _consistent(self) -> "Privacy":
        if (self.epsilon is None) != (self.model == "none"):
            raise ValueError("epsilon: must be given, except under the model 'none', which promises nothing")
        if self.model in ("local", "none") and self.delta != 0:
            raise ValueError("delta: must be 0 under the models 'local' (pure epsilon) and 'none'")
        least = _DELTA_MIN.get(self.model, 0.0)
        if self.delta < least:
            raise ValueError(f"delta: must be at least {least:g} under the {self.model} model; 1e-6 is usual")
        if self.model != "local" and self.calibration == "published":
            raise ValueError("calibration: 'published' exists under the local model only")
        if self.model == "shuffle" and self.local_epsilon_max < self.bound:
            raise ValueError("local_epsilon_max: must be at least epsilon")
        if self.model == "shuffle" and self.honest_fraction * self.min_batch < 1:
            raise ValueError("honest_fraction: must leave at least one report of min_batch")
        return self

    @property
    def bound(self) -> float:
        """Epsilon of the promise, infinite if there is none."""
        return math.inf if self.epsilon is None else self.epsilon

    @property
    def arm_in_key(self) -> bool:
        """Whether reports hide the arm as they hide the bin, so that coins of a report say nothing about it."""
        return self.arms == "seen" and self.model in ("shuffle", "central")


class PartitionAlgorithm(_Section):
    """The partition bandit (paper 1).

    Attributes
    ----------
    confidence
        ``practical``: tuned radii. ``proved``: union bounds, valid if every arm's mean reward is Lipschitz with
        constant ``lipschitz`` (rewards and features scaled to [0, 1], Euclidean norm) and the density of contexts is
        at most ``density_bound``.
    failure
        Under ``proved``, the chance that an arm is ever dropped where it is best.
    """

    name: Literal["partition"]
    confidence: Literal["practical", "proved"] = "practical"
    lipschitz: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    density_bound: float = Field(default=1.0, ge=1, allow_inf_nan=False)
    failure: float = Field(default=0.05, gt=0, lt=1)


class Source(_Section):
    """A cohort that reports on arms it has played before, ahead of the experiment's own people (auxiliary data).

    Attributes
    ----------
    name
        Lower-case letters, digits and dashes.
    people
        How many may report.
    epsilon
        What it is promised, in place of the experiment's epsilon; the rest of the promise is the same.
    shares
        Share of the cohort's people who played each arm, whatever their context, in the order of ``arms``: a public
        behaviour policy. Their arms themselves are secret.
    population
        The cohort in simulation; the experiment's own if there is none.
    """

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9-]{0,62}$")
    people: int = Field(ge=1, le=1_000_000_000)
    epsilon: float | None = Field(default=None, gt=0, le=16, allow_inf_nan=False)
    shares: tuple[Annotated[float, Field(ge=0, le=1)], ...] | Literal["unknown"]
    population: Population | None = None


class Experiment(_Section):
    """What is asked, and of how many.

    Attributes
    ----------
    name
        Lower-case letters, digits and dashes.
    arms
        2 to 16 names of options.
    horizon
        People who may report; then the policy stands.
    round_size
        Reports in the first round.
    round_growth
        A later round has at least this share of the people seen so far.
    """

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9-]{0,62}$")
    arms: tuple[Annotated[str, Field(pattern=r"^[\w .+-]{1,64}$")], ...] = Field(
        min_length=ARMS_MIN, max_length=ARMS_MAX
    )
    horizon: int = Field(ge=1, le=10_000_000_000)
    round_size: int = Field(default=1000, ge=1, le=1_000_000)
    round_growth: float = Field(default=0.0, ge=0, le=1, allow_inf_nan=False)

    @model_validator(mode="after")
    def _distinct(self) -> "Experiment":
        if len(set(self.arms)) != len(self.arms):
            raise ValueError("arms: names must be distinct")
        return self


class Spec(_Section):
    """A whole experiment."""

    experiment: Experiment
    context: Context
    reward: Reward = Reward()
    privacy: Privacy
    algorithm: PartitionAlgorithm
    sources: tuple[Source, ...] = Field(default=(), max_length=16)
    population: Population | None = None

    @model_validator(mode="after")
    def _rounds_hold_batches(self) -> "Spec":
        if self.privacy.model == "shuffle" and self.privacy.min_batch > self.experiment.round_size:
            raise ValueError("privacy.min_batch: must be at most experiment.round_size")
        if self.experiment.round_size > self.experiment.horizon:
            raise ValueError("experiment.round_size: must be at most experiment.horizon")
        return self

    @model_validator(mode="after")
    def _sources_agree(self) -> "Spec":
        if len({source.name for source in self.sources}) != len(self.sources):
            raise ValueError("sources: names must be distinct")
        for source in self.sources:
            where = f"sources.{source.name}"
            if (source.epsilon is None) != (self.privacy.epsilon is None):
                raise ValueError(f"{where}.epsilon: must be given just where privacy.epsilon is")
            if self.privacy.model == "shuffle" and self.privacy.local_epsilon_max < (source.epsilon or 0.0):
                raise ValueError(f"{where}.epsilon: must be at most privacy.local_epsilon_max")
            self._check_shares(source, where)
        return self

    def _check_shares(self, source: Source, where: str) -> None:
        if source.shares == "unknown":
            if self.privacy.calibration == "published":
                return
            raise ValueError(f"{where}.shares: must be public: what is learned of an arm is in proportion to them")
        if len(source.shares) != self.arm_count or abs(sum(source.shares) - 1) > 1e-6:
            raise ValueError(f"{where}.shares: must be one for each arm, with a sum of 1")

    def without_people(self) -> "Spec":
        """The spec for a service, which has no use for simulated people, nor for the names of their files."""
        sources = tuple(source.model_copy(update={"population": None}) for source in self.sources)
        return self.model_copy(update={"population": None, "sources": sources})

    @property
    def cohorts(self) -> tuple[Source, ...]:
        """Sources in the order of their turns: the most informative reports first; as listed under ``published``."""
        if self.privacy.calibration == "published":
            return self.sources
        return tuple(sorted(self.sources, key=lambda source: -(source.epsilon or 0.0)))

    def source(self, cohort: str) -> Source | None:
        """The source of this name; none for the experiment's own people, or a name that is not there."""
        return next((source for source in self.sources if source.name == cohort), None)

    def privacy_of(self, cohort: str) -> Privacy:
        """What a person of a cohort is promised; ``cohort`` is empty for the experiment's own people."""
        source = self.source(cohort)
        return self.privacy if source is None else self.privacy.model_copy(update={"epsilon": source.epsilon})

    @property
    def dimension(self) -> int:
        """Number of features."""
        return len(self.context.features)

    @property
    def arm_count(self) -> int:
        """Number of arms."""
        return len(self.experiment.arms)


@dataclass(frozen=True)
class Turn:
    """Whose round it is.

    Attributes
    ----------
    cohort
        A source's name; empty for the experiment's own people.
    seen
        People of the cohort whose reports opened in earlier rounds.
    batch
        Reports of the round; 0 when the experiment is over.
    """

    cohort: str
    seen: int
    batch: int


def next_turn(spec: Spec, last: Turn | None, received: int | None = None) -> Turn:
    """The turn after ``last``, or the first one: sources one after the other, then the experiment's own people.

    Parameters
    ----------
    last
        The round that closed.
    received
        People whose reports opened in it; its whole batch if not given. Whether an honest report opens does not depend
        on the person, so the number is public; and what does not open uses up nobody's place.
    """
    cohorts = [source.name for source in spec.cohorts] + [""]
    cohort, seen = (cohorts[0], 0) if last is None else (last.cohort, last.seen)
    if last is not None:
        seen += last.batch if received is None else received
    batch = _batch(spec, cohort, seen)
    while cohort and not batch:
        cohort, seen = cohorts[cohorts.index(cohort) + 1], 0
        batch = _batch(spec, cohort, seen)
    return Turn(cohort, seen, batch)


def first_batch(spec: Spec, cohort: str) -> int:
    """Reports of a cohort's first round; 0 for a source that is never asked."""
    return _batch(spec, cohort, 0)


def _batch(spec: Spec, cohort: str, seen: int) -> int:
    """Reports of the round that starts after ``seen`` people of the cohort; 0 when it has had its turn.

    A last round too small for the promise is left out: under shuffle, one below ``min_batch``.
    """
    source = spec.source(cohort)
    left = max(0, (spec.experiment.horizon if source is None else source.people) - seen)
    wanted = max(spec.experiment.round_size, math.floor(spec.experiment.round_growth * seen))
    batch = min(wanted, left)
    return 0 if spec.privacy.model == "shuffle" and batch < spec.privacy.min_batch else batch


def parse_spec(data: dict[str, Any]) -> Spec:
    """A spec from the tables of a TOML file.

    Raises
    ------
    SpecError
        Naming the first offending field, its constraint and the remedy.
    """
    return parse_section(Spec, data)


def read_spec(text: str) -> Spec:
    """A spec from the text of a TOML file.

    Raises
    ------
    SpecError
        If the text is not TOML, or as `parse_spec`.
    """
    return parse_spec(toml_tables(text))
