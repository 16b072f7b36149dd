"""Baselines by name: the list, the baselines that a spec allows, and the leaky baseline, which no spec can name."""

from pathlib import Path

import pytest

from privateer_core.algorithms.bandit import BanditSpec
from privateer_core.errors import SpecError
from privateer_lab.baselines.run import BASELINES, play_once, select_baselines
from privateer_papers.paper_5.phased_regret import section_7_spec
from tests.support.specs import SHUFFLE, make_spec

WITHOUT_ARMS = section_7_spec("none")
NONE = {"privacy.model": "none", "privacy.epsilon": None}


def test_names_without_repetition():
    assert select_baselines(["linear", "oracle", "linear"], make_spec()) == ["linear", "oracle"]
    assert select_baselines([], make_spec()) == []


def test_all_selects_the_baselines_that_the_promise_allows():
    assert select_baselines(["all"], make_spec(SHUFFLE)) == list(BASELINES)
    assert select_baselines(["all"], make_spec(NONE)) == ["abse", "constant", "oracle", "tree", "uniform"]


def test_an_unknown_name_is_refused_with_the_known_ones():
    with pytest.raises(SpecError, match=r"no baseline 'greedy'.*uniform") as refusal:
        select_baselines(["greedy"], make_spec())
    assert refusal.value.field == "--baseline"


def test_local_privacy_without_an_epsilon_is_refused():
    with pytest.raises(SpecError, match="promises none"):
        select_baselines(["ldpmab"], make_spec(NONE))


def test_an_experiment_without_arms_is_refused():
    with pytest.raises(SpecError, match="no arms") as refusal:
        select_baselines(["uniform"], WITHOUT_ARMS)
    assert refusal.value.field == "--baseline"
    with pytest.raises(SpecError, match="no arms"):
        play_once(WITHOUT_ARMS, ["uniform"], 0)
    assert select_baselines([], WITHOUT_ARMS) == []


def test_without_features_nothing_that_learns_is_left():
    spec = BanditSpec.instances()["local"]
    assert select_baselines(["all"], spec) == ["constant", "oracle", "uniform"]
    with pytest.raises(SpecError, match="1 to 8 columns"):
        select_baselines(["tree"], spec)


def test_one_leaks_and_no_spec_can_name_it():
    assert [name for name, baseline in BASELINES.items() if baseline.leaks] == ["leaky"]
    for field in ("algorithm.name", "privacy.calibration", "privacy.model"):
        with pytest.raises(SpecError) as refusal:
            make_spec({field: "leaky"})
        assert refusal.value.field == field


@pytest.mark.parametrize("name", BASELINES)
def test_every_baseline_says_what_it_is(name):
    assert BASELINES[name].__doc__
    assert f"`{name}`" in (Path(__file__).parents[4] / "docs" / "baselines.md").read_text()
