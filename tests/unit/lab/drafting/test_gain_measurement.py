"""Participants of a draft measure what choosing by features gains only where the interval is narrower than that."""

import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privateer_core.algorithms import parse_spec
from privateer_core.answer.parts import Gain
from privateer_lab.drafting.gain_measurement import gain_half_width
from privateer_lab.drafting.spec_draft import draft
from privateer_lab.planning.algorithm_choice import AlgorithmChoice
from privateer_lab.simulation.simulation import Simulation

GARDEN = Path(__file__).parents[4] / "examples" / "garden-shuffle.toml"
PROMISES: dict[str, dict[str, Any]] = {
    "none": {"model": "none"},
    "central": {"model": "central", "epsilon": 1.0, "delta": 1e-6},
    "shuffle": {"model": "shuffle", "epsilon": 1.0, "delta": 1e-6},
    "local": {"model": "local", "epsilon": 1.0},
}


@pytest.mark.parametrize("model", PROMISES)
def test_the_half_width_is_about_that_of_a_measurement(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The interval is up to half too wide where noise is small: it counts people with the same option twice."""
    monkeypatch.chdir(GARDEN.parent)
    tables = tomllib.loads(GARDEN.read_text(encoding="utf-8"))
    tables["experiment"] |= {"horizon": 20_000, "evaluation_fraction": 0.05}
    spec: Any = parse_spec(tables | {"privacy": PROMISES[model], "algorithm": {"name": "partition"}})
    run = Simulation(spec, 1)
    while run.step.batch_size:
        run.close_round()
    gain = run.schedule.answer(run.step).gain
    assert isinstance(gain, Gain)
    assert gain.high is not None
    assert gain.low is not None
    assert 0.95 < gain_half_width(spec) / ((gain.high - gain.low) / 2) < 1.7


@pytest.mark.parametrize(("model", "gain", "is_measured"), [("none", 0.1, True), ("local", 0.1, False)])
def test_a_measurement_wider_than_the_gain_is_a_comment(model: str, gain: float, is_measured: bool) -> None:
    """Planted: a twentieth of the people, whatever is promised. Under `local` they tell the gain to ± 21.7 points."""
    rng = np.random.default_rng(0)
    log = {"x": rng.random(20_000), "arm": rng.integers(0, 2, 20_000), "won": rng.integers(0, 2, 20_000)}
    spec_draft = draft(log, arm="arm", reward="won", model=model, bounds={"x": (0, 1)})
    assert spec_draft.spec.gain_people == 1000  # type: ignore[attr-defined]
    choice = AlgorithmChoice("partition", {"partition": 0.5 + gain}, 0.5, 0.2, is_rate=True)
    spec_draft.__dict__["_choice_or_error"] = choice
    lines = spec_draft.text_with_choice.splitlines()
    line = next(number for number, text in enumerate(lines) if "evaluation_fraction" in text)
    assert lines[line].startswith("#") != is_measured
    reason = "# so few would measure the gain to about ± 21.7 points, and in runs it is 10.0 points"
    assert (lines[line - 1] == reason) != is_measured
