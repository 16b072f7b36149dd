"""Effects in the UCI Adult census at epsilon 2: by sex, by hours, and by both, under every trust model."""

import os
from pathlib import Path

import numpy as np
import pytest

from privateer_lab.cli.input_files import load_spec
from privateer_lab.simulation.simulation import Simulation

SPEC = Path(__file__).parents[2] / "examples" / "adult-effects.toml"
pytestmark = pytest.mark.data
MODELS = {
    "none": ["privacy.model=none", "privacy.epsilon=", "privacy.delta="],
    "central": ["privacy.model=central"],
    "shuffle": ["privacy.local_epsilon_max=6"],
    "local": ["privacy.model=local", "privacy.delta="],
}
SEGMENTS = {
    "sex": ["segments.proportions="],
    "hours": ['segments.features=["hours"]', "segments.cuts={ hours = [40, 41] }", "segments.proportions="],
}


def result(seed: int, *settings: str):
    data = Path(os.environ["PRIVATEER_ADULT"])
    paths = f"population.path={data},{data.with_name('adult.test.gz')}"
    run = Simulation(load_spec(SPEC, [*settings, paths]), seed)
    while run.step.batch_size:
        run.close_round()
    return run.judgement.facts(), run.schedule.answer(run.step)


@pytest.mark.parametrize("by", SEGMENTS)
@pytest.mark.parametrize("model", MODELS)
def test_signs_and_coverage(model: str, by: str) -> None:
    """Five trials of known effects from -.045 to .092; a wrong decision has probability .0001 at most."""
    results = [result(seed, *MODELS[model], *SEGMENTS[by]) for seed in range(5)]
    assert np.mean([facts["coverage"] for facts, _ in results]) > 0.8
    for _, result_ in results:
        signs = {
            estimate.name: np.sign(estimate.low)
            for estimate in result_.estimates
            if estimate.low > 0 or estimate.high < 0
        }
        wrong = [name for name, sign in signs.items() if sign != (-1 if "Female" in name or "hours<40" in name else 1)]
        assert wrong in ([], ["offer: everybody"])


def test_a_few_people_are_too_small() -> None:
    """Women of 70 hours and more are 190."""
    settings = ['segments.features=["sex", "hours"]', "segments.cuts={ hours = [70] }", "segments.proportions="]
    _, answer = result(0, *MODELS["shuffle"], *settings, "algorithm.minimum_detectable_effect=0.1")
    reason = next(effect.reason for effect in answer.effects if effect.group == "sex=Female or other & hours>=70")
    assert "too" in reason
