"""Figures of the pages on trials that can be computed again are; what they have readers type is there."""

import re
from pathlib import Path

import numpy as np
import pytest

from privateer_core.errors import SpecError
from privateer_core.spec.privacy import Privacy
from privateer_lab.cli.input_files import load_spec
from privateer_papers.catalogue import all_reproductions
from privateer_papers.paper_4.frontier import trial_setting
from privateer_server.algorithms.trial.evidence.epochs import PlannedEpoch, TrialDesign
from privateer_server.algorithms.trial.group_sequential import decision_time, find_drift
from privateer_server.algorithms.trial.power.power_analysis import required_people
from tests.docs.test_readme import blocks

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "trial" / "planning.md").read_text()
FIGURES = (ROOT / "docs" / "trial" / "figures.md").read_text()
ROWS = re.findall(r"^\| (\.\d+), (\.\d+), (\d) \| (.*) \|$", PAGE, re.MULTILINE)
TIMES = tuple((1.5 ** np.arange(-7.0, 1.0)).tolist())
PROMISES = [
    {"model": "none"},
    {"model": "central", "epsilon": 1.0},
    None,  # shuffled batches take seconds to calibrate
    {"model": "local", "epsilon": 2.0},
    {"model": "local", "epsilon": 1.0},
]


def participants_needed(promise: dict[str, object], base: float, effect: float, segments: int) -> float:
    setting = trial_setting(Privacy.model_validate(promise), segments, 1_000)
    design = TrialDesign(0.05, 1e5, np.array([0.5, 0.5]), np.array([1 / segments]), setting.counted)
    epochs = [PlannedEpoch(1e5 * size, setting.keep, setting.other, setting.noise) for size in np.diff((0.0, *TIMES))]
    return float(required_people(design, epochs, base + effect / 2, effect)[0, 0])


@pytest.mark.parametrize("row", ROWS)
def test_people_needed(row: tuple[str, str, str, str]) -> None:
    base, effect, segments = float(row[0]), float(row[1]), int(row[2])
    figures = [float(figure.replace(",", "")) for figure in row[3].split(" | ")]
    for figure, promise in zip(figures, PROMISES, strict=True):
        if promise is not None:
            assert participants_needed(promise, base, effect, segments) == pytest.approx(figure, rel=0.02)


def test_all_rows_are_found_and_decision_times_are_right() -> None:
    assert len(ROWS) == 6
    drift = find_drift(TIMES, 0.05)
    assert f"{decision_time(TIMES, 0.05, drift):.0%}".replace("%", " %") in PAGE
    assert f"{decision_time(TIMES, 0.05, 2 * drift):.0%}".replace("%", " %") in PAGE


def test_commands_of_the_page_name_existing_specs_and_options() -> None:
    (planned,), (measured,) = blocks("sh", PAGE), blocks("sh", FIGURES)
    commands = planned + measured
    reproduced = re.findall(r"reproduce (\S+)", commands)
    assert reproduced
    for name in reproduced:
        assert name in all_reproductions()
    for path in re.findall(r"(?:tests|examples)/\S+", commands):
        assert (ROOT / path).is_file()


def test_the_published_calibration_is_refused() -> None:
    promise = ["privacy.model=central", "privacy.epsilon=1", "privacy.calibration=published"]
    with pytest.raises(SpecError, match="unknown key"):
        load_spec(ROOT / "examples" / "trial.toml", promise)
