"""The people of the UCI Adult census."""

from typing import Final

import numpy as np

from privateer.errors import SpecError
from privateer.experiment import Spec
from privateer.population import AdultPopulation, Projection
from privateer_lab.environments.classified import Classified
from privateer_lab.environments.column import Categories, Classes
from privateer_lab.environments.named import Named, check_features
from privateer_lab.environments.projection import Projected
from privateer_lab.environments.table import Table

COLUMNS: Final = (
    "age",
    "workclass",
    "fnlwgt",
    "education",
    "education-num",
    "marital-status",
    "occupation",
    "relationship",
    "race",
    "sex",
    "capital-gain",
    "capital-loss",
    "hours",
    "native-country",
    "income",
)
PROJECTION: Final = Projection(
    numbers=("age", "education-num", "capital-gain", "capital-loss", "hours"),
    categories=("workclass", "marital-status", "occupation", "relationship", "race", "sex"),
)
"""46 columns once categories are one-hot and incomplete rows are left out: the number in paper 1, Table 1."""
_REWARDS: Final = {"offers": np.array([[0.35, 0.0], [0.1, 1.0]]), "income": np.eye(2)}
_TARGET: Final = "United-States"


def read_adult(section: AdultPopulation, spec: Spec, seed: int) -> Classified:
    """Rows of the census as people; rows without a value that is needed are left out.

    Raises
    ------
    SpecError
        If a file cannot be used or the spec has not two arms.
    """
    if spec.arm_count != 2:
        raise SpecError("population 'adult' has 2", field="experiment.arms", remedy="name two arms")
    table = Table(section.path, header=COLUMNS, remark="|")
    source = Projected(PROJECTION, spec, COLUMNS) if section.projected else Named(spec, COLUMNS)
    country = Categories("native-country")
    # The test file's labels end in a dot.
    income = Classes("income", ("<=50K", ">50K"), {"<=50K.": "<=50K", ">50K.": ">50K"})
    parts = section.cohort != "all"
    columns = [*source.columns, income, *([country] if parts else [])]
    table.fill(columns, spec.dimension, complete=COLUMNS if parts else (), drop=True)
    income.check("population.path")
    contexts, labels = source.contexts(), income.codes
    if parts:
        born_here = country.codes == country.names.get(_TARGET, -1)
        chosen = born_here if section.cohort == "target" else ~born_here
        contexts, labels = contexts[chosen], labels[chosen]
    check_features(contexts, spec)
    return Classified(contexts, labels, _REWARDS[section.task], seed)
