"""Additive bandits whose arms change places: only with a memory they follow the change. Fixed seeds."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

from privateer_core.algorithms import parse_spec
from privateer_lab.simulation.simulation import Simulation

pytestmark = pytest.mark.nightly

EXAMPLE = Path(__file__).parents[2] / "examples" / "additive-shuffle.toml"
FEATURES = ("age", "income", "device", "member")
NONE = {"model": "none"}
CENTRAL = {"model": "central", "epsilon": 1.0, "delta": 1e-6}
SHUFFLE = {"model": "shuffle", "epsilon": 1.0, "delta": 1e-6}
LOCAL, ALONE = {"model": "local", "epsilon": 4.0}, {"model": "local", "epsilon": 3.0}
CASES = [
    pytest.param(NONE, 8000, 0.05, id="none"),
    pytest.param(CENTRAL, 8000, 0.04, id="central"),
    pytest.param(SHUFFLE, 16_000, 0.01, id="shuffle"),
    pytest.param(LOCAL, 16_000, 0.01, id="local"),
    pytest.param(ALONE, 16_000, 0.01, id="levels first"),
]
"""Promise, people before arms change places, and by how much a memory of half as many earns more after that.

Twice as many people come after the change. Two seeds differ by .01."""


def after_a_swap(privacy: dict[str, Any], before: int, memory: float | str) -> tuple[float, float]:
    """Mean expected rewards of the last rounds before arms change places, and of all rounds after."""
    tables = tomllib.loads(EXAMPLE.read_text())
    features = {name: tables["context"]["features"][name] for name in FEATURES}
    sizes = {"horizon": 3 * before, "round_size": 1000, "min_round_fraction": 0.0}
    tables |= {
        "experiment": tables["experiment"] | sizes,
        "context": {"features": features},
        "privacy": privacy,
        "algorithm": {"name": "additive", "bins": 8, "half_life": memory},
        "population": tables["population"] | {"drift": {"name": "swap", "period": before}},
    }
    run, rounds = Simulation(parse_spec(tables), 0), []
    while run.step.batch_size:
        earlier = run.score.played
        run.close_round()
        rounds.append((run.score.played.expected - earlier.expected) / (run.score.played.times - earlier.times))
    first = before // 1000
    return sum(rounds[first - 3 : first]) / 3, sum(rounds[first:]) / len(rounds[first:])


@pytest.mark.parametrize(("privacy", "before", "margin"), CASES)
def test_rewards_recover_after_a_swap_with_a_memory_and_not_without(
    privacy: dict[str, Any], before: int, margin: float
) -> None:
    (first, without), (steady, remembered) = (after_a_swap(privacy, before, memory) for memory in ("none", before / 2))
    assert first - steady < 0.05, "what a memory costs while nothing moves"
    assert remembered > without + margin
    assert first - without > 0.1
