"""The people of the UCI Adult census."""

from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from privateer_core.errors import SpecError
from privateer_core.spec.arms import ArmsSpec
from privateer_lab.environments.environment import Array, EnvironmentSection
from privateer_lab.environments.files.classified import Classified, check_all_occur, check_features
from privateer_lab.environments.files.file_columns import Categories, Numbers
from privateer_lab.environments.files.file_contexts import Named, Projected, ProjectionSection
from privateer_lab.environments.files.people_file import PeopleFile

# fmt: off
COLUMNS: Final = (
    "age", "workclass", "fnlwgt", "education", "education-num", "marital-status", "occupation", "relationship", "race",
    "sex", "capital-gain", "capital-loss", "hours", "native-country", "income",
)
# fmt: on
PROJECTION: Final = ProjectionSection(
    numbers=("age", "education-num", "capital-gain", "capital-loss", "hours"),
    categories=("workclass", "marital-status", "occupation", "relationship", "race", "sex"),
)
"""46 columns once categories are one-hot and incomplete rows are left out: the number in paper 1, Table 1."""
ADDED: Final = np.array([[-0.074, -0.04, 0.01], [0.02, 0.06, 0.11]])
"""What an arm adds to the share of incomes above 50K: for women and for men of below 40, 40, and more hours."""
_HOURS: Final = (40.0, 41.0)
_REWARDS: Final = {"offers": np.array([[0.35, 0.0], [0.1, 1.0]]), "income": np.eye(2)}
_INCOMES: Final = {"<=50K": 0, ">50K": 1, "<=50K.": 0, ">50K.": 1}
"""The test file's labels end in a dot."""
_TARGET: Final = "United-States"


class AdultSection(EnvironmentSection):
    """The UCI Adult census.

    Attributes
    ----------
    path
        One or more of its files, plain or gzipped, separated by commas.
    task
        ``offers``: two offers, the first worth .35 to incomes up to 50K and 0 above, the second .1 and 1.
        ``income``: guess the income's class, reward 1 for the right one (paper 1, Section 4.2). ``effects``: the reward
        is an income above 50K, to which the second arm adds what `ADDED` says, by sex and hours.
    cohort
        ``all``; or of the rows without missing values, the ``target`` of paper 1 (41,292 born in the United States)
        or the ``source`` (3,930 born elsewhere).
    projected
        Contexts are principal components of the 46 columns that paper 1 counts, instead of columns of the file.
    """

    name: Literal["adult"]
    path: str = Field(min_length=1)
    task: Literal["offers", "income", "effects"] = "offers"
    cohort: Literal["all", "target", "source"] = "all"
    projected: bool = False

    def environment(self, spec: ArmsSpec, seed: int) -> Classified:
        """Read the files; rows without a value that is needed are left out."""
        if spec.arm_count != 2:
            raise SpecError("population 'adult' has 2", field="experiment.arms", remedy="name two arms")
        table = PeopleFile(self.path, header=COLUMNS, remark="|")
        source = Projected(PROJECTION, spec, COLUMNS) if self.projected else Named(spec, COLUMNS)
        country, income = Categories("native-country"), Categories("income", _INCOMES)
        parts = self.cohort != "all"
        sex, hours = Categories("sex"), Numbers("hours")
        cells = [sex, hours] if self.task == "effects" else []
        columns = [*source.columns, income, *([country] if parts else []), *cells]
        table.fill(columns, len(spec.features), complete=COLUMNS if parts else (), drop=True)
        check_all_occur(income, "population.path")
        contexts, labels, rewards = source.contexts(), income.values, _REWARDS.get(self.task)
        if rewards is None:
            cell = 3 * (sex.values == sex.names.get("Male", -1)) + np.searchsorted(_HOURS, hours.values, side="right")
            labels, rewards = 2 * cell + labels, _added(cell, labels)
        if parts:
            born_here = country.values == country.names.get(_TARGET, -1)
            chosen = born_here if self.cohort == "target" else ~born_here
            contexts, labels = contexts[chosen], labels[chosen]
        check_features(contexts, spec)
        return Classified(contexts, labels, rewards, seed)


def _added(cell: NDArray[np.integer], labels: NDArray[np.integer]) -> Array:
    """Return the mean rewards of both arms, (12, 2), for classes of 2 * cell + label.

    An effect takes a reward from as many of those who have one, or gives it to as many of those who have none.
    """
    rewards = np.tile([[0.0, 0.0], [1.0, 1.0]], (6, 1))
    for place, effect in enumerate(ADDED.ravel().tolist()):
        rate = float(labels[cell == place].mean()) if (cell == place).any() else 0.5
        if effect < 0 < rate:
            rewards[2 * place + 1, 1] = max(0.0, 1 + effect / rate)
        elif effect > 0 and rate < 1:
            rewards[2 * place, 1] = min(1.0, effect / (1 - rate))
    return np.asarray(rewards)
