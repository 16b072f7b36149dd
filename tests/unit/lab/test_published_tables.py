"""Published tables of counts: the analysis of each option and segment equals an independent estimate."""

from typing import NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import t as student

import privateer_lab as lab


class Counts(NamedTuple):
    """Numbers of people and of positive outcomes of the control and the other option, by segment or in total."""

    arms: tuple[str, str]
    cells: dict[str | None, tuple[tuple[int, int], tuple[int, int]]]


TABLES = {
    # Admissions to Berkeley in 1973: people and admitted ones, by department (Bickel, Hammel and O'Connell 1975).
    "berkeley": Counts(
        ("men", "women"),
        {
            "A": ((825, 512), (108, 89)),
            "C": ((325, 120), (593, 202)),
            "D": ((417, 138), (375, 131)),
            "E": ((191, 53), (393, 94)),
            "F": ((373, 22), (341, 24)),
        },
    ),
    # Deaths by breast cancer in 25 years (Miller et al. 2014).
    "mammogram": Counts(("control", "mammogram"), {None: ((44_910, 505), (44_925, 500))}),
    # Paralytic polio (Francis 1955).
    "polio": Counts(("placebo", "vaccine"), {None: ((201_229, 115), (200_745, 33))}),
    # Strokes or deaths within a year, with medical treatment and a stent (Derdeyn et al. 2014).
    "stent": Counts(("medical", "stent"), {None: ((227, 28), (224, 45))}),
}


def welch(cell: tuple[tuple[int, int], tuple[int, int]]) -> tuple[float, float]:
    """Return a difference of shares, and half of Welch's interval of 95 %."""
    (n_0, y_0), (n_1, y_1) = cell
    shares = np.array([y_0 / n_0, y_1 / n_1])
    errors = shares * (1 - shares) / (np.array([n_0, n_1]) - 1)
    freedom = errors.sum() ** 2 / (errors**2 / (np.array([n_0, n_1]) - 1)).sum()
    return float(shares[1] - shares[0]), float(student.ppf(0.975, freedom) * np.sqrt(errors.sum()))


def rows_of(counts: Counts) -> dict[str, NDArray[np.str_]]:
    """Return a row for each person."""
    columns: dict[str, list[NDArray[np.str_]]] = {"arm": [], "outcome": [], "segment": []}
    for segment, cell in counts.cells.items():
        for arm, (people, yes) in zip(counts.arms, cell, strict=True):
            columns["arm"].append(np.repeat(arm, people))
            columns["outcome"].append(np.where(np.arange(people) < yes, "yes", "no"))
            columns["segment"].append(np.repeat(segment or "", people))
    return {name: np.concatenate(parts) for name, parts in columns.items()}


@pytest.mark.parametrize("name", TABLES)
def test_effects_of_published_tables_are_those_of_a_textbook(name: str) -> None:
    """Widths are within 3 % of Welch's, estimates within 3 % of them. Swapped arms would be off by twice the effect."""
    counts = TABLES[name]
    rows = rows_of(counts)
    segments = ["segment"] if len(counts.cells) > 1 else []
    if not segments:
        del rows["segment"]
    effects = lab.analyze(rows, reward="outcome", control=counts.arms[0], segments=segments).answer.effects
    by_group = {effect.group and effect.group.removeprefix("segment="): effect for effect in effects}
    for segment, cell in counts.cells.items():
        value, radius = welch(cell)
        effect = by_group[segment]
        assert effect.value == pytest.approx(value, abs=0.03 * radius)
        assert effect.low is not None
        assert effect.high is not None
        assert (effect.high - effect.low) / (2 * radius) == pytest.approx(1.0, abs=0.03)
        assert not effect.is_decided or not effect.low <= 0 <= effect.high
    if segments:
        sizes = {name: sum(people for people, _ in cell) for name, cell in counts.cells.items()}
        average = sum(size * welch(counts.cells[name])[0] for name, size in sizes.items()) / sum(sizes.values())
        assert by_group[None].value == pytest.approx(average, abs=0.002)
