"""The pages on rewards: plans compute their tables of participants needed, and reports have their levels."""

import math
import re
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from privateer_core.algorithms import parse_spec
from privateer_core.mechanisms import NamedSymbol
from privateer_core.primitives.questions import KeyedHits
from privateer_server.algorithms.trial.power.power_analysis import analyze_power, build_designs

DOCS: Final = Path(__file__).parents[2] / "docs"
PAGE: Final = (DOCS / "rewards.md").read_text()
MEASURED: Final = (DOCS / "rewards-measured.md").read_text()
MODELS: Final = (
    {"model": "none"},
    {"model": "central", "epsilon": 1.0},
    {"model": "central", "epsilon": 0.3},
    {"model": "shuffle", "epsilon": 1.0, "delta": 1e-6},
    {"model": "local", "epsilon": 4.0},
    {"model": "local", "epsilon": 1.0},
)
"""The columns of the table."""
SCORE: Final = {"base_rate": 0.5}
REVENUE: Final = {"low": 0.0, "high": 200.0, "base_rate": 2.3}
OUTCOMES: Final = (
    ({"base_rate": 0.3}, 0.02),
    (SCORE, 0.01),
    (SCORE | {"kind": "numeric", "standard_deviation": 0.1}, 0.01),
    (REVENUE, 0.23),
    (REVENUE | {"kind": "numeric", "standard_deviation": 14.0}, 0.23),
)
"""Rewards and effects, the rows of the table."""


def find_sample_size(privacy: dict[str, Any], reward: dict[str, Any], effect: float, guess: float = 2e4) -> float:
    """People with whom a trial of two arms finds an effect, in rounds calibrated for as many people."""
    n_needed = guess
    for _ in range(10):
        previous, spec = n_needed, trial_of(privacy, reward, int(n_needed))
        n_needed = float(analyze_power(spec, build_designs(spec)).people_for(effect / spec.reward.span)[-1].min())
        if abs(n_needed / previous - 1) < 0.003:
            break
    return n_needed


def trial_of(privacy: dict[str, Any], reward: dict[str, Any], people: int) -> Any:
    """A trial of two arms in fixed shares."""
    return parse_spec(
        {
            "experiment": {"name": "trial", "arms": ["a", "b"], "horizon": people, "round_size": 1000},
            "context": {"features": {"x": {"low": 0.0, "high": 1.0}}},
            "reward": reward,
            "privacy": privacy,
            "algorithm": {"name": "trial", "allocation": "fixed"},
        }
    )


def in_digits(people: float) -> str:
    """People as the page has them, in two digits."""
    rounded = round(people, 1 - math.floor(math.log10(people)))
    if rounded < 1e6:
        return f"{rounded:,.0f}"
    return f"{rounded / 1e6:,.{1 if rounded < 1e7 else 0}f}M"


def read(cell: str) -> float:
    """The people of a cell."""
    return float(cell.strip("M").replace(",", "")) * (1e6 if cell.endswith("M") else 1)


def table_after(words: str, first: int, page: str = PAGE) -> list[list[str]]:
    """The cells of the table that follows these words, without heads and the ``first`` columns."""
    lines = page[page.index(words) :].split("\n\n|", 1)[1].split("\n\n", 1)[0].splitlines()[2:]
    return [[cell.strip(" *") for cell in line.strip("|").split("|")][first:] for line in lines]


def computed(rows: list[list[str]], outcomes: Sequence[tuple[dict[str, Any], float]]) -> list[list[str]]:
    """The cells of a table, from a plan for as many people as it tells."""
    return [
        [in_digits(find_sample_size(model, *outcome, read(cell))) for model, cell in zip(MODELS, cells, strict=True)]
        for outcome, cells in zip(outcomes, rows, strict=True)
    ]


def test_the_people_that_outcomes_take() -> None:
    """Planted: a score of .7 of the deviation takes half of the people, where there is no noise."""
    rows = table_after("People in all", first=2)
    assert rows == computed(rows, OUTCOMES)
    noiseless = (SCORE | {"kind": "numeric", "standard_deviation": 0.07}, 0.01)
    assert rows[2][0] != in_digits(find_sample_size(MODELS[0], *noiseless))


@pytest.mark.parametrize("model", [1, 3])
def test_the_people_that_wide_bounds_take(model: int) -> None:
    """Ten times too wide, and as they are, which is a row of the table."""
    name = "`{model}` {epsilon:g}".format(**MODELS[model])
    match = re.search(rf"(\S+) (?:people )?instead of (\S+) under {re.escape(name)}", PAGE)
    assert match
    wide = SCORE | {"kind": "numeric", "high": 10.0, "standard_deviation": 0.1}
    assert match[1] == in_digits(find_sample_size(MODELS[model], wide, 0.01, read(match[1])))
    assert match[2] == table_after("People in all", first=2)[2][model]


def test_the_levels_that_reports_have() -> None:
    """One key, a mean in the middle: at each local epsilon of the table, and just below it, as many as it says."""
    heads = re.search(r"\| local epsilon - .*\n", MEASURED)
    assert heads
    steps = [float(cell.split()[0]) for cell in heads.group().strip("|\n ").split("|")[2:]]
    (levels,) = table_after("so L depends on", 1, MEASURED)
    question = KeyedHits.from_keys(1, expected=0.5)
    for below, step, count in zip(levels, steps, levels[1:], strict=False):
        assert NamedSymbol.calibrated(question, step - 0.01).levels == int(below)
        assert NamedSymbol.calibrated(question, step + 0.01).levels == int(count)


@pytest.mark.parametrize("snippet", re.findall(r"```toml\n(.*?)```", PAGE, re.S))
def test_snippets_are_rewards_that_a_spec_may_have(snippet: str) -> None:
    spec = trial_of(MODELS[1], tomllib.loads(snippet)["reward"], 20_000)
    assert spec.concerns() == [], "what the page recommends has nothing to warn of"
