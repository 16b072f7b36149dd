"""What the spec of an A/B test says, and what it refuses."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privateer_core.algorithms import parse_spec
from privateer_core.algorithms.trial import TrialSpec
from privateer_core.algorithms.trial.sections import planned_looks
from privateer_core.errors import SpecError
from privateer_core.spec.context import encoded
from privateer_lab.cli.input_files import load_spec
from privateer_lab.toml_file import read_tables
from privateer_server.rounds.loop import Schedule

EXAMPLE = Path(__file__).parents[3] / "examples" / "trial.toml"


def spec(*settings: str) -> TrialSpec:
    return load_spec(EXAMPLE, list(settings))


REFUSED: dict[str, tuple[str, ...]] = {
    "segments.by": ("segments.by=['sex']", "segments.shares="),
    "segments.shares": ("segments.shares={ 'group=e' = 0.5, 'group=a' = 0.5 }",),
    "segments.cuts.group": ("segments.cuts.group=[1.0]",),
    "segments.bins": ("segments.bins=4", "segments.shares="),
    "algorithm.alpha": ("algorithm.alpha=0.4",),
    "algorithm.floor": ("algorithm.floor=0.34",),
    "algorithm.shares": ("algorithm.shares=[0.92, 0.04, 0.04]",),
    "algorithm.stop": ("algorithm.stop=['futility']",),
    "algorithm.intervals": ("algorithm.intervals=strict",),
    "experiment.round_growth": ("experiment.round_growth=0.5",),
    "privacy.min_batch": ("privacy.min_batch=3000",),
    "privacy.calibration": ("privacy.calibration=published",),
}


@pytest.mark.parametrize("field", REFUSED)
def test_what_cannot_be_is_refused_with_a_remedy(field: str) -> None:
    with pytest.raises(SpecError) as refused:
        spec(*REFUSED[field])
    assert refused.value.field == field
    assert refused.value.remedy


SAID = {
    "algorithm.alpha=fast": "algorithm.alpha: must be a number, or must be 'accuracy', 'balanced' or 'welfare' (",
    "algorithm.effect=1": "algorithm.effect: must be below the range of rewards, 1 (",
    "algorithm.guardrails=refund": "algorithm.guardrails: must be a list (",
    "algorithm.guardrails=['a', 'b', 'c']": "algorithm.guardrails: must have at most 2 items, not 3 (",
    "algorithm.shares=[.5, .5]": "--set algorithm.shares: is not a list or table of TOML (",
    "segments.shares=even": "segments.shares: must be a table, or must be 'equal' (",
    "segments.shares={ 'group=a' = 0 }": "segments.shares.group=a: must be greater than 0 (",
    "segments.shares={ 'group=a' = 'x' }": "segments.shares.group=a: must be a number (",
    "segments.shares={ 'group=a' = 0.5, 'group=b' = 0.5 }": "segments.shares: must be one for each segment, and '",
}


@pytest.mark.parametrize("setting", SAID)
def test_mistakes_are_named_in_the_words_of_the_file(setting: str) -> None:
    with pytest.raises(SpecError) as refused:
        spec(setting)
    assert str(refused.value).startswith(SAID[setting])


def test_the_spec_of_the_page_is_possible(tmp_path: Path) -> None:
    page = (EXAMPLE.parents[1] / "docs" / "trial.md").read_text()
    (tmp_path / "page.toml").write_text(page.split("```toml\n")[1].split("```")[0])
    found = load_spec(tmp_path / "page.toml", [])
    assert isinstance(found, TrialSpec)
    assert found.segment_names[-1] == "country=BE or other"


def test_a_first_look_that_says_nothing_is_refused() -> None:
    """Twelve segments and arms need 240 people."""
    with pytest.raises(SpecError) as refused:
        spec("experiment.horizon=200", "experiment.round_size=200", "privacy.min_batch=100")
    assert (refused.value.field, "240" in str(refused.value)) == ("experiment.round_size", True)


def test_more_keys_than_a_report_can_name_are_refused_in_the_words_of_the_file() -> None:
    many = [
        "segments.shares=",
        "segments.by=['age']",
        "segments.bins=1024",
        "context.features.age={ low = 0, high = 1 }",
    ]
    many += ["algorithm.guardrails=['refund', 'complaint']", "population.guardrails={}"]
    with pytest.raises(SpecError) as refused:
        spec(*many, f"experiment.arms={[f'arm {k}' for k in range(16)]}")
    assert refused.value.field == "segments.bins"
    assert "1024 segments by 16 arms by 4 answers to guardrails" in str(refused.value)
    assert "at most 256 segments" in str(refused.value)


def test_an_effect_that_the_promise_hides_is_refused_with_the_figure() -> None:
    possible = spec("algorithm.effect=0.05")
    Schedule(possible).open(1)
    with pytest.raises(SpecError) as refused:
        Schedule(spec("algorithm.effect=0.002")).open(1)
    assert refused.value.field == "algorithm.effect"
    assert "0.0" in str(refused.value)


def test_retired_arms_are_refused_at_the_start() -> None:
    with pytest.raises(SpecError, match="retired"):
        Schedule(spec("experiment.retired=['bold']")).open(1)


def test_looks_grow_by_half_and_end_at_the_horizon() -> None:
    found = planned_looks(100_000, 2500, 8)
    assert found[-1] == 100_000
    assert np.allclose(np.divide(found[1:], found[:-1]), 1.5, rtol=1e-3)
    assert min(np.diff([0, *found])) >= 2500
    assert planned_looks(100, 100, 8) == (100,)


def crossed(tables: dict[str, Any]) -> TrialSpec:
    tables["context"] = {
        "features": {
            "hours": {"low": 1, "high": 99, "missing": True},
            "sex": {"levels": ["Male", "Female"]},
            "member": {"boolean": True},
        }
    }
    tables["segments"] = {"by": ["sex", "hours"], "cuts": {"hours": [40, 41]}}
    made = parse_spec({name: table for name, table in tables.items() if name != "population"})
    assert isinstance(made, TrialSpec)
    return made


def test_people_are_in_the_segments_that_are_named() -> None:
    made = crossed(read_tables(EXAMPLE, [], "SPEC"))
    people = np.array([[39.9, 0, 1], [40, 0, 0], [41, 1, 1], [99, 1, 0], [np.nan, 1, 0]])
    where = made.segmentation.locate(encoded(made.features, people))
    expected = ["Male & hours<40", "Male & 40<=hours<41", "Female or other & hours>=41", "Female or other & hours>=41"]
    assert [made.segment_names[place].replace("sex=", "") for place in where] == [
        *expected,
        "Female or other & hours missing",
    ]
    assert made.segment_count == len(set(made.segment_names)) == 8


def test_bins_halve_numbers_in_turn() -> None:
    tables = read_tables(EXAMPLE, [], "SPEC")
    tables["context"] = {"features": {"x": {"low": 0, "high": 1}, "y": {"low": -1, "high": 1}}}
    tables["segments"] = {"by": ["x", "y"], "bins": 8}
    made = parse_spec({name: table for name, table in tables.items() if name != "population"})
    assert isinstance(made, TrialSpec)
    assert [factor.parts for factor in made.segmentation.factors] == [4, 2]
    where = made.segmentation.locate(np.array([[0.0, 0.0], [0.26, 0.6], [1.0, 1.0]]))
    assert where.tolist() == [0, 3, 7]


def test_words_for_alpha_are_shares_of_the_largest() -> None:
    assert spec("algorithm.alpha=accuracy").floor == pytest.approx(1 / 3)
    assert spec("algorithm.alpha=welfare").alpha == pytest.approx(1 / 3)
    assert spec("algorithm.alpha=balanced").floor == pytest.approx(100_000 ** (-1 / 6) / 3)
