"""The people of the UCI Adult census."""

from typing import Final, Literal

import numpy as np
from pydantic import Field

from privateer.errors import SpecError
from privateer.spec import ArmsSpec
from privateer_lab.environments.classified import Classified, check_all_occur, check_features
from privateer_lab.environments.columns import Categories
from privateer_lab.environments.environment import EnvironmentSection
from privateer_lab.environments.features import Named, Projected, ProjectionSection
from privateer_lab.environments.table import Table

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

    def environment(self, spec: ArmsSpec, seed: int) -> Classified:
        """Read the files; rows without a value that is needed are left out."""
        if spec.arm_count != 2:
            raise SpecError("population 'adult' has 2", field="experiment.arms", remedy="name two arms")
        table = Table(self.path, header=COLUMNS, remark="|")
        source = Projected(PROJECTION, spec, COLUMNS) if self.projected else Named(spec, COLUMNS)
        country, income = Categories("native-country"), Categories("income", _INCOMES)
        parts = self.cohort != "all"
        columns = [*source.columns, income, *([country] if parts else [])]
        table.fill(columns, len(spec.features), complete=COLUMNS if parts else (), drop=True)
        check_all_occur(income, "population.path")
        contexts, labels = source.contexts(), income.values
        if parts:
            born_here = country.values == country.names.get(_TARGET, -1)
            chosen = born_here if self.cohort == "target" else ~born_here
            contexts, labels = contexts[chosen], labels[chosen]
        check_features(contexts, spec)
        return Classified(contexts, labels, _REWARDS[self.task], seed)
