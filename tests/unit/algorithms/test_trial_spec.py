"""The spec of an A/B test: its values, and what it refuses."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privateer_core.algorithms import parse_spec
from privateer_core.algorithms.trial import TrialSpec
from privateer_core.algorithms.trial.sections import planned_looks
from privateer_core.codec import encode
from privateer_core.errors import SpecError
from privateer_core.spec.context import encode_features
from privateer_core.spec.sections import parse_toml
from privateer_lab.cli.input_files import load_spec
from privateer_lab.toml_file import read_tables
from privateer_server.rounds.schedule import Schedule

EXAMPLE = Path(__file__).parents[3] / "examples" / "trial.toml"


def spec(*settings: str) -> TrialSpec:
    return load_spec(EXAMPLE, list(settings))


REFUSED: dict[str, tuple[str, ...]] = {
    "segments.features": ("segments.features=['sex']", "segments.proportions="),
    "segments.proportions": ("segments.proportions={ 'group=e' = 0.5, 'group=a' = 0.5 }",),
    "segments.cuts.group": ("segments.cuts.group=[1.0]",),
    "segments.bins": ("segments.bins=4", "segments.proportions="),
    "algorithm.exploration_decay": ("algorithm.exploration_decay=0.1",),
    "algorithm.min_allocation": ("algorithm.min_allocation=0.34",),
    "algorithm.allocation_ratio": ("algorithm.allocation_ratio=[0.92, 0.04, 0.04]",),
    "algorithm.stopping_rules": ("algorithm.stopping_rules=['futility']",),
    "experiment.min_round_fraction": ("experiment.min_round_fraction=0.5",),
    "privacy.min_batch": ("privacy.min_batch=3000",),
    "privacy.calibration": ("privacy.calibration=published",),
}


@pytest.mark.parametrize("field", REFUSED)
def test_impossible_specs_are_refused_with_a_remedy(field: str) -> None:
    with pytest.raises(SpecError) as refused:
        spec(*REFUSED[field])
    assert refused.value.field == field
    assert refused.value.remedy


SAID = {
    "algorithm.exploration_decay=welfare": "algorithm.exploration_decay: is no longer a key (set "
    "algorithm.min_allocation to the smallest share of an arm",
    "algorithm.minimum_detectable_effect=1": "algorithm.minimum_detectable_effect: must be below the range of "
    "rewards, 1 (",
    "algorithm.guardrails=refund": "algorithm.guardrails: must be a list (",
    "algorithm.guardrails=['a', 'b', 'c']": "algorithm.guardrails: must have at most 2 items, not 3 (",
    "algorithm.allocation_ratio=[.5, .5]": "--set algorithm.allocation_ratio: is not a list or table of TOML (",
    "segments.proportions=even": "segments.proportions: must be a table, or must be 'equal' (",
    "segments.proportions={ 'group=a' = 0 }": "segments.proportions.group=a: must be greater than 0 (",
    "segments.proportions={ 'group=a' = 'x' }": "segments.proportions.group=a: must be a number (",
    "segments.proportions={ 'group=a' = 0.5, 'group=b' = 0.5 }": "segments.proportions: must be one for each "
    "segment, and '",
}


@pytest.mark.parametrize("setting", SAID)
def test_mistakes_are_named_in_the_words_of_the_file(setting: str) -> None:
    with pytest.raises(SpecError) as refused:
        spec(setting)
    assert str(refused.value).startswith(SAID[setting])


def test_the_spec_of_the_page_is_possible(tmp_path: Path) -> None:
    page = (EXAMPLE.parents[1] / "docs" / "trial.md").read_text()
    (tmp_path / "page.toml").write_text(page.split("```toml\n")[1].split("```")[0])
    spec = load_spec(tmp_path / "page.toml", [])
    assert isinstance(spec, TrialSpec)
    assert spec.segment_names[-1] == "country=BE or other"


def test_a_trial_of_everybody_needs_no_feature() -> None:
    """Compare its policy with that of a trial whose features define no segments."""
    page = (EXAMPLE.parents[1] / "docs" / "trial.md").read_text()
    tables = parse_toml(page.split("## Everybody alike")[1].split("```toml\n")[1].split("```")[0])
    of_everybody = parse_spec(tables)
    assert isinstance(of_everybody, TrialSpec)
    assert (of_everybody.segment_names, of_everybody.dimension) == (("everybody",), 0)
    unused = parse_spec(tables | {"context": {"features": {"x": {"low": 0.0, "high": 1.0}}}})
    assert encode(Schedule(of_everybody).open(7, 1).policy) == encode(Schedule(unused).open(7, 1).policy)
    with pytest.raises(SpecError, match=r"segments\.features: no feature is 'x' \(add it to context\.features\)"):
        parse_spec(tables | {"segments": {"features": ["x"], "cuts": {"x": [0.5]}}})
    with pytest.raises(SpecError, match=r"segments\.bins: divides segments\.features, which names none"):
        parse_spec(tables | {"segments": {"bins": 4}})


@pytest.mark.parametrize("name", ["partition", "additive", "linear"])
def test_an_algorithm_that_chooses_by_features_asks_for_one(name: str) -> None:
    tables = read_tables(EXAMPLE, [], "SPEC")
    kept = {key: tables[key] for key in ("experiment", "privacy")} | {"algorithm": {"name": name}}
    message = rf"context\.features: is missing, and '{name}' chooses by features \(add one, or set algorithm\.name = "
    with pytest.raises(SpecError, match=message):
        parse_spec(kept)


def test_a_first_look_of_too_few_participants_is_refused() -> None:
    """Twelve segments and arms need 240 people."""
    with pytest.raises(SpecError) as refused:
        spec("experiment.horizon=200", "experiment.round_size=200", "privacy.min_batch=100")
    assert (refused.value.field, "240" in str(refused.value)) == ("experiment.round_size", True)


def test_more_keys_than_a_report_can_name_are_refused_in_the_words_of_the_file() -> None:
    overrides = [
        "segments.proportions=",
        "segments.features=['age']",
        "segments.bins=1024",
        "context.features.age={ low = 0, high = 1 }",
    ]
    overrides += ["algorithm.guardrails=['refund', 'complaint']", "population.guardrails={}"]
    with pytest.raises(SpecError) as refused:
        spec(*overrides, f"experiment.arms={[f'arm {k}' for k in range(16)]}")
    assert refused.value.field == "segments.bins"
    assert "1024 segments by 16 arms by 4 answers to guardrails" in str(refused.value)
    assert "at most 256 segments" in str(refused.value)


def test_an_effect_below_the_noise_is_refused_with_the_figure() -> None:
    possible = spec("algorithm.minimum_detectable_effect=0.05")
    Schedule(possible).open(1)
    with pytest.raises(SpecError) as refused:
        Schedule(spec("algorithm.minimum_detectable_effect=0.002")).open(1)
    assert refused.value.field == "algorithm.minimum_detectable_effect"
    assert "0.0" in str(refused.value)


def test_retired_arms_are_refused_at_the_start() -> None:
    with pytest.raises(SpecError, match="retired"):
        Schedule(spec("experiment.retired_arms=['bold']")).open(1)


def test_looks_grow_by_half_and_end_at_the_horizon() -> None:
    looks = planned_looks(100_000, 2500, 8)
    assert looks[-1] == 100_000
    assert np.allclose(np.divide(looks[1:], looks[:-1]), 1.5, rtol=1e-3)
    assert min(np.diff([0, *looks])) >= 2500
    assert planned_looks(100, 100, 8) == (100,)


def cross_with_sex(tables: dict[str, Any]) -> TrialSpec:
    tables["context"] = {
        "features": {
            "hours": {"low": 1, "high": 99, "missing": True},
            "sex": {"levels": ["Male", "Female"]},
            "member": {"boolean": True},
        }
    }
    tables["segments"] = {"features": ["sex", "hours"], "cuts": {"hours": [40, 41]}}
    spec = parse_spec({name: table for name, table in tables.items() if name != "population"})
    assert isinstance(spec, TrialSpec)
    return spec


def test_people_are_in_the_segments_that_are_named() -> None:
    spec_with_sex = cross_with_sex(read_tables(EXAMPLE, [], "SPEC"))
    people = np.array([[39.9, 0, 1], [40, 0, 0], [41, 1, 1], [99, 1, 0], [np.nan, 1, 0]])
    segments = spec_with_sex.segmentation.locate(encode_features(spec_with_sex.features, people))
    expected = ["Male & hours<40", "Male & 40<=hours<41", "Female or other & hours>=41", "Female or other & hours>=41"]
    assert [spec_with_sex.segment_names[place].replace("sex=", "") for place in segments] == [
        *expected,
        "Female or other & hours missing",
    ]
    assert spec_with_sex.segment_count == len(set(spec_with_sex.segment_names)) == 8


def test_bins_halve_numbers_in_turn() -> None:
    tables = read_tables(EXAMPLE, [], "SPEC")
    tables["context"] = {"features": {"x": {"low": 0, "high": 1}, "y": {"low": -1, "high": 1}}}
    tables["segments"] = {"features": ["x", "y"], "bins": 8}
    spec = parse_spec({name: table for name, table in tables.items() if name != "population"})
    assert isinstance(spec, TrialSpec)
    assert [factor.parts for factor in spec.segmentation.factors] == [4, 2]
    segments = spec.segmentation.locate(np.array([[0.0, 0.0], [0.26, 0.6], [1.0, 1.0]]))
    assert segments.tolist() == [0, 3, 7]


def test_the_default_floor_decays_by_horizon_and_numbers() -> None:
    assert spec().min_arm_share == pytest.approx(100_000 ** (-1 / 6) / 3)
    tables = read_tables(EXAMPLE, [], "SPEC")
    tables["context"] = {"features": {"x": {"low": 0, "high": 1}, "y": {"low": -1, "high": 1}}}
    tables["segments"] = {"features": ["x", "y"], "bins": 8}
    two_numbers = parse_spec({name: table for name, table in tables.items() if name != "population"})
    assert isinstance(two_numbers, TrialSpec)
    assert two_numbers.min_arm_share == pytest.approx(100_000 ** (-1 / 8) / 3)
