"""The specification of an experiment: what a TOML file says, and what everybody may read."""

import math
import tomllib
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter, ValidationError, model_validator

from privateer.errors import SpecError
from privateer.population import Population
from privateer.section import Finite
from privateer.section import Section as _Section

ARMS_MIN, ARMS_MAX = 2, 16
FEATURES_MAX = 5
Model = Literal["local", "shuffle", "central", "none"]
_DELTA_MIN = {"shuffle": 1e-15, "central": 1e-8}
"""What the accountant certifies; under central the distance of drawn noise from the normal law must be small in it."""
_POPULATION: TypeAdapter[Population] = TypeAdapter(Population)


class Feature(_Section):
    """Bounds of one feature; a device clips to them and scales to [0, 1]."""

    low: Finite
    high: Finite

    @model_validator(mode="after")
    def _not_empty(self) -> "Feature":
        if not self.low < self.high:
            raise ValueError("the range is empty, low must be below high")
        return self


class Context(_Section):
    """The features of a context, in order."""

    features: dict[str, Feature] = Field(min_length=1, max_length=FEATURES_MAX)


class Reward(_Section):
    """Bounds of a reward; a device clips to them and scales to [0, 1]."""

    low: Finite = 0.0
    high: Finite = 1.0

    @model_validator(mode="after")
    def _not_empty(self) -> "Reward":
        if not self.low < self.high:
            raise ValueError("the range is empty, low must be below high")
        return self


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
    calibration: Literal["tight", "published"] = "tight"
    min_batch: int = Field(default=1000, ge=100, le=1_000_000)
    honest_fraction: float = Field(default=0.9, gt=0, le=1, allow_inf_nan=False)
    local_epsilon_max: float = Field(default=6.0, gt=0, le=16, allow_inf_nan=False)

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
        return self

    @property
    def bound(self) -> float:
        """Epsilon of the promise, infinite if there is none."""
        return math.inf if self.epsilon is None else self.epsilon


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
    population: Population | None = None

    @model_validator(mode="after")
    def _rounds_hold_batches(self) -> "Spec":
        if self.privacy.model == "shuffle" and self.privacy.min_batch > self.experiment.round_size:
            raise ValueError("privacy.min_batch: must be at most experiment.round_size")
        if self.experiment.round_size > self.experiment.horizon:
            raise ValueError("experiment.round_size: must be at most experiment.horizon")
        return self

    @property
    def dimension(self) -> int:
        """Number of features."""
        return len(self.context.features)

    @property
    def arm_count(self) -> int:
        """Number of arms."""
        return len(self.experiment.arms)


def next_batch(spec: Spec, seen: int) -> int:
    """Reports of the round that starts after ``seen`` people; 0 when the experiment is over.

    A last round too small for the promise is left out: under shuffle, one below ``min_batch``.
    """
    left = spec.experiment.horizon - seen
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
    try:
        return Spec.model_validate(data)
    except ValidationError as error:
        raise _as_spec_error(error, data) from None


def parse_population(table: dict[str, Any]) -> Population:
    """A population from its table.

    Raises
    ------
    SpecError
        As `parse_spec`.
    """
    try:
        return _POPULATION.validate_python(table)
    except ValidationError as error:
        raise _as_spec_error(error, {"population": table}, "population") from None


def read_spec(text: str) -> Spec:
    """A spec from the text of a TOML file.

    Raises
    ------
    SpecError
        If the text is not TOML, or as `parse_spec`.
    """
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SpecError(f"not TOML: {error}", field="spec", remedy="see the examples") from None
    return parse_spec(data)


def _as_spec_error(error: ValidationError, data: Any, *above: str) -> SpecError:
    first: Any = error.errors(include_url=False, include_input=False)[0]
    kind, message = first["type"], str(first["msg"]).removeprefix("Value error, ")
    field = _dotted((*above, *first["loc"]), data)
    if kind == "value_error" and ": " in message:
        inner, message = message.split(": ", 1)
        field = inner if "." in inner or not field else f"{field}.{inner}"
    elif kind == "union_tag_invalid":
        field, message = f"{field}.name", f"must be one of {first['ctx']['expected_tags']}"
    elif kind == "union_tag_not_found":
        field, message = f"{field}.name", "missing"
    elif kind == "extra_forbidden":
        message = "unknown key"
    remedies = {
        "extra_forbidden": "remove it or correct its spelling",
        "missing": "add it",
        "union_tag_not_found": "add it",
    }
    return SpecError(message, field=field or "spec", remedy=remedies.get(kind, "see docs/configuration.md"))


def _dotted(place: tuple[int | str, ...], data: Any) -> str:
    """The name of a field as the file has it: without the tags that tell tables of different kinds apart."""
    parts, here = [], data
    for part in place:
        if isinstance(here, dict) and part not in here and here.get("name") == part:
            continue
        parts.append(str(part))
        here = here.get(part) if isinstance(here, dict) else None
    return ".".join(parts)
