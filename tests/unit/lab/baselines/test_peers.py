"""Others' libraries beside an experiment: the same people, what they are told, and what is said without them."""

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from privateer_core.errors import SpecError
from privateer_lab.baselines.peers import CHANCE, MabWiser, VowpalWabbit, compare, contestants, peers_of, side_by_side
from privateer_lab.baselines.run import play_together
from privateer_lab.cli.input_files import load_spec
from tests.support.specs import make_spec
from tests.unit.lab.cli.test_command_line import run

PEOPLE = 4000
EXAMPLES = Path(__file__).parents[4] / "examples"


def example(name: str, *settings: str) -> Any:
    return load_spec(EXAMPLES / f"{name}.toml", [*settings, f"experiment.horizon={PEOPLE}"])


@dataclass
class Recorder:
    """What both libraries are told."""

    told: list[Any] = field(default_factory=list)

    def predict(self, asked: Any = None) -> Any:
        if isinstance(asked, str):
            return [0.0, 1.0]
        return [1] * len(asked) if asked is not None else 1

    def learn(self, *told: Any) -> None:
        self.told.append(told)

    fit = partial_fit = learn


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    made = Recorder()
    monkeypatch.setitem(sys.modules, "vowpalwabbit", SimpleNamespace(Workspace=lambda _: made))
    policies = SimpleNamespace(LinTS=lambda: None, ThompsonSampling=lambda: None)
    library = SimpleNamespace(MAB=lambda *_, **__: made, LearningPolicy=policies)
    monkeypatch.setitem(sys.modules, "mabwiser", SimpleNamespace(mab=library))
    monkeypatch.setitem(sys.modules, "mabwiser.mab", library)
    return made


def test_vowpal_wabbit_is_told_who_got_what_with_which_probability(recorder: Recorder) -> None:
    spec = example("linear")
    play_together(spec, {"it": VowpalWabbit("--squarecb", spec, 0)}, 0)
    head, features = recorder.told[0][0].split(" |f ")
    assert len(recorder.told) == PEOPLE
    assert head in ("2:-1:1", "2:-0:1")
    assert [one.partition(":")[0] for one in features.split()] == ["x0", "x1", "x2", "x3"]
    assert all(-1 <= float(one.partition(":")[2]) <= 1 for one in features.split())


@pytest.mark.parametrize("name", ["linear", "bandit"])
def test_mabwiser_is_told_a_round_at_once(name: str, recorder: Recorder) -> None:
    spec = example(name)
    play_together(spec, {"it": MabWiser(lambda policies: policies.ThompsonSampling(), spec, 0)}, 0)
    first, second = recorder.told[:2]
    assert len(first[0]) == len(first[1]) == spec.experiment.round_size
    assert set(first[0]) == set(range(spec.arm_count))
    assert set(second[0]) == {1}
    assert len(first) == (3 if spec.dimension else 2)


@pytest.mark.parametrize("name", ["vowpalwabbit", "mabwiser.mab"])
def test_a_missing_library_is_one_line(
    name: str, recorder: Recorder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    code, _, err = run(capsys, "peers", str(EXAMPLES / "linear.toml"), "--users", str(PEOPLE), "--seeds", "1")
    package = name.partition(".")[0]
    assert (code, err) == (2, f"privateer: peers: {package} is not installed (install privateer-lab[benchmark])\n")


def test_specs_that_peers_cannot_play_are_refused() -> None:
    with pytest.raises(SpecError, match="an arm for each person"):
        contestants(load_spec(EXAMPLES / "convex-two-point.toml", []))
    source = {"name": "before", "people": 100, "epsilon": 1.0, "shares": [0.5, 0.5], "population": {"name": "peaks"}}
    with pytest.raises(SpecError, match="sources"):
        contestants(make_spec({"sources": [source]}))


@pytest.mark.parametrize("model", ["local", "none"])
def test_the_experiment_itself_learns_from_private_reports(model: str, recorder: Recorder) -> None:
    """Thompson sampling of two arms a half apart: chance loses 1,000."""
    promise = ["privacy.epsilon=4"] if model == "local" else ["privacy.model=none", "privacy.epsilon="]
    spec = example("bandit", 'experiment.arms=["a","b"]', "population.gap=0.5", *promise)
    rows = list(compare(spec, {name: contestants(spec)[name] for name in (spec.name, CHANCE)}, 2))
    found = side_by_side(rows, PEOPLE)
    assert found[CHANCE]["regret_mean"] == pytest.approx(1000, abs=60)
    assert found[spec.name]["regret_mean"] < 250
    assert found[spec.name]["decisions_per_second"] > found[spec.name]["people_per_second"] > 0


@pytest.mark.benchmark
@pytest.mark.parametrize("name", ["linear", "bandit"])
def test_peers_learn(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "peers", str(EXAMPLES / f"{name}.toml"), "--users", "20000", "--seeds", "1", "--json")
    found = json.loads(out)["policies"]
    assert code == 0
    assert len(found) == 7
    best = {
        library: min(one["regret_mean"] for peer, one in found.items() if peer.startswith(library)) / chance
        for chance in [found[CHANCE]["regret_mean"]]
        for library in ("Vowpal Wabbit", "mabwiser")
    }
    assert best["Vowpal Wabbit"] < 0.85
    assert best["mabwiser"] < 0.3
    assert np.isfinite([one["decisions_per_second"] for one in found.values()]).all()


def test_there_are_peers_with_contexts_and_without(recorder: Recorder) -> None:
    assert [len(peers_of(example(name))) for name in ("linear", "bandit")] == [5, 5]
    assert set(peers_of(example("linear"))) & set(peers_of(example("bandit")))
