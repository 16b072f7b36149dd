"""The ``[population]`` of a spec: which simulated people take part. Services ignore it."""

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from privateer.sections import Section, parse_section

Seed = Annotated[int, Field(ge=0, lt=2**31)]
Chance = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Columns = tuple[Annotated[str, Field(min_length=1, max_length=256)], ...]


class UniformDensity(Section):
    """Contexts uniform on the unit cube."""

    name: Literal["uniform"] = "uniform"


class ShiftedDensity(Section):
    """Density proportional to ||x - 1/2||_inf^gamma: fewer people in the middle (paper 1, Section 4.1)."""

    name: Literal["shifted"]
    gamma: float = Field(ge=0, le=100, allow_inf_nan=False)


class VariedDensity(Section):
    """A constant density in every cell of a grid, ``ratio`` times as high in the densest as in the sparsest.

    Attributes
    ----------
    ratio
        Of the highest density to the lowest; those between are evenly spaced in their logarithm.
    side
        Cells along a feature.
    seed
        Decides which cell has which density.
    """

    name: Literal["varied"]
    ratio: float = Field(default=40.0, ge=1, le=1e6, allow_inf_nan=False)
    side: Literal[2, 4] = 4
    seed: Seed = 0


class AtomsDensity(Section):
    """A share of people at a few points, in equal parts; the others uniform.

    Attributes
    ----------
    share
        Of the people at points.
    points
        How many points.
    seed
        Decides where they are.
    """

    name: Literal["atoms"]
    share: float = Field(gt=0, le=1, allow_inf_nan=False)
    points: int = Field(default=5, ge=1, le=1000)
    seed: Seed = 0


Density = Annotated[UniformDensity | ShiftedDensity | VariedDensity | AtomsDensity, Field(discriminator="name")]


class SwapDrift(Section):
    """Every ``period`` people, each arm takes over the mean rewards of the next, and the last those of the first."""

    name: Literal["swap"]
    period: int = Field(ge=1)


class SlideDrift(Section):
    """Every ``period`` people, mean rewards move by ``step`` along the first feature, reflected at its ends."""

    name: Literal["slide"]
    period: int = Field(ge=1)
    step: float = Field(ge=-1, le=1, allow_inf_nan=False)


Drift = Annotated[SwapDrift | SlideDrift, Field(discriminator="name")]


class _Synthetic(Section):
    """Mean rewards by a formula, contexts by a density; features and rewards are in [0, 1]."""

    density: Density = UniformDensity()
    drift: Drift | None = None


class PeaksPopulation(_Synthetic):
    """Paper 1, Section 4.1."""

    name: Literal["peaks"]


class QuadrantsPopulation(_Synthetic):
    """Paper 1, supplement."""

    name: Literal["quadrants"]


class SmoothPopulation(_Synthetic):
    """A random smooth function for every arm.

    Attributes
    ----------
    function
        Number of the function: the same number gives the same function, whatever the run's seed.
    shape
        ``gentle``, ``rough``, ``ridge`` (one direction matters) or ``close`` (arms differ little).
    """

    name: Literal["smooth"]
    function: Seed
    shape: Literal["gentle", "rough", "ridge", "close"] = "gentle"


class Projection(Section):
    """Contexts are the leading principal components of these columns, one a feature of the spec.

    Attributes
    ----------
    numbers
        Numeric columns, standardized to mean 0 and variance 1.
    categories
        Other columns, one-hot: a column of 0 and 1 for every value that occurs.
    """

    numbers: Columns = ()
    categories: Columns = ()

    @model_validator(mode="after")
    def _has_columns(self) -> "Projection":
        if not self.numbers and not self.categories:
            raise ValueError("name columns in numbers or categories")
        if len(set(self.numbers + self.categories)) < len(self.numbers + self.categories):
            raise ValueError("a column is named twice")
        return self


class CsvPopulation(Section):
    """The rows of CSV files with a header: everybody once, in an order that the run's seed decides; then over again.

    Attributes
    ----------
    path
        The file, plain or gzipped; several, with the same columns, are separated by commas.
    label
        The column that says which class somebody belongs to, and that no device knows.
    classes
        Its values; by default the names of the arms.
    rewards
        Row by class, the chance of reward 1 of every arm; by default 1 for the arm of the same position and 0
        otherwise: a classification bandit (paper 1, Section 4.2).
    missing
        ``drop`` leaves out rows without a value that is needed; ``refuse`` names the first.
    ignore
        Columns that nobody uses; ``*`` for all others.
    project
        Makes contexts of principal components. Otherwise a feature of the spec is the column of its name, and
        ``column=value`` is 1 where a column has that value and 0 elsewhere.
    """

    name: Literal["csv"]
    path: str = Field(min_length=1)
    label: str = Field(min_length=1)
    classes: Columns | None = None
    rewards: tuple[tuple[Chance, ...], ...] | None = None
    missing: Literal["refuse", "drop"] = "refuse"
    ignore: Columns = ()
    project: Projection | None = None

    @model_validator(mode="after")
    def _has_rewards_for_its_classes(self) -> "CsvPopulation":
        if self.classes is not None and (len(self.classes) < 2 or len(set(self.classes)) < len(self.classes)):
            raise ValueError("classes: must be two or more distinct values")
        if self.rewards is not None and len({len(row) for row in self.rewards}) != 1:
            raise ValueError("rewards: must have rows of equal length, a number for every arm")
        return self


class AdultPopulation(Section):
    """The UCI Adult census.

    Attributes
    ----------
    path
        One or more of its files, plain or gzipped, separated by commas.
    task
        ``offers``: two offers, the first worth .35 to incomes up to 50K and 0 above, the second .1 and 1.
        ``income``: guess the income's class, reward 1 for the right one (paper 1, Section 4.2).
    cohort
        ``all``; or of the rows without missing values, the ``target`` of paper 1 (41,292 born in the United States)
        or the ``source`` (3,930 born elsewhere).
    projected
        Contexts are principal components of the 46 columns that paper 1 counts, instead of columns of the file.
    """

    name: Literal["adult"]
    path: str = Field(min_length=1)
    task: Literal["offers", "income"] = "offers"
    cohort: Literal["all", "target", "source"] = "all"
    projected: bool = False


Population = Annotated[
    PeaksPopulation | QuadrantsPopulation | SmoothPopulation | CsvPopulation | AdultPopulation,
    Field(discriminator="name"),
]


class _Chosen(Section):
    population: Population


def parse_population(table: dict[str, Any]) -> Population:
    """A population from its table.

    Raises
    ------
    SpecError
        Naming the first offending field, its constraint and the remedy.
    """
    return parse_section(_Chosen, {"population": table}).population
