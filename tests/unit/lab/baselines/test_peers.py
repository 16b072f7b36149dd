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
from privateer_lab.baselines.libraries import LEARNT_AT_ONCE, MabWiser, VowpalWabbit
from privateer_lab.baselines.peers import BEST_ARM, CHANCE, compare, contestants, peers_of, side_by_side
from privateer_lab.baselines.run import play_together
from privateer_lab.cli.input_files import load_spec
from tests.support.small_table import small_table
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
    commands: list[str] = field(default_factory=list)

    def workspace(self, command: str) -> "Recorder":
        self.commands.append(command)
        return self

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
    monkeypatch.setitem(sys.modules, "vowpalwabbit", SimpleNamespace(Workspace=made.workspace))
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


def test_vowpal_wabbit_is_asked_for_pairs_of_features_by_name(recorder: Recorder, tmp_path: Path) -> None:
    spec: Any = load_spec(small_table(tmp_path, 300), [])
    play_together(spec, {"it": peers_of(spec)["Vowpal Wabbit, SquareCB, pairs"](spec, 0)}, 0)
    assert recorder.commands == ["--cb_explore 3 --squarecb -q ff --quiet --random_seed 1"]
    features = recorder.told[0][0].split(" |f ")[1].split()
    assert [one[:2] for one in features] == ["x0", "x1", "a1"]
    assert {one[0].split()[-1] for one in recorder.told} == {"a1_0", "a1_1", "a1_2"}


@pytest.mark.parametrize("name", ["linear", "bandit"])
def test_mabwiser_is_told_of_some_people_at_once(name: str, recorder: Recorder) -> None:
    spec = example(name)
    play_together(spec, {"it": MabWiser(lambda policies: policies.ThompsonSampling(), spec, 0)}, 0)
    first, second = recorder.told[:2]
    assert len(first[0]) == len(first[1]) == LEARNT_AT_ONCE
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
    entered = contestants(spec, peers=[CHANCE])
    own = "Privateer, bandit"
    found = side_by_side(list(compare(entered, spec, range(2))), PEOPLE)
    assert list(found) == [own, CHANCE]
    assert found[CHANCE]["regret_mean"] == pytest.approx(1000, abs=60)
    assert found[own]["regret_mean"] < 250
    assert found[own]["decisions_per_second"] > found[own]["people_per_second"] > 0


def test_algorithms_and_peers_meet_the_same_rows(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Every row is met once, so one arm for everybody earns exactly its class's share, whatever the order."""
    path = small_table(tmp_path, 900)
    beside = [*("--with", "partition"), *("--with", "linear"), *("--with", "bandit")]
    wanted = ["--peer", "constant", "--peer", "random", "--first-seed", "7", "--seeds", "2", "--json"]
    code, out, _ = run(capsys, "peers", str(path), *beside, *wanted)
    found = json.loads(out)
    assert code == 0
    assert (found["first_seed"], found["model"], found["people"]) == (7, "none", 900)
    algorithms = ("additive", "partition", "linear", "bandit")
    assert list(found["policies"]) == [*(f"Privateer, {one}" for one in algorithms), BEST_ARM, CHANCE]
    for figures in found["policies"].values():
        assert figures["reward_mean"] == pytest.approx(np.mean(figures["rewards"]))
        assert figures["reward_error"] == pytest.approx(np.std(figures["rewards"], ddof=1) / 2**0.5)
        assert figures["regret_mean"] == pytest.approx(900 * (1 - figures["reward_mean"]))
    assert found["policies"][BEST_ARM]["rewards"] == [pytest.approx(0.45)] * 2
    assert found["policies"]["Privateer, additive"]["reward_mean"] > 0.5
    assert found["policies"][CHANCE]["rewards"][0] != found["policies"][CHANCE]["rewards"][1]


def test_a_run_depends_on_its_seed_alone(tmp_path: Path) -> None:
    spec: Any = load_spec(small_table(tmp_path, 900), [])
    apart = [next(compare(contestants(spec, peers=["boosted"]), spec, range(9, 10)))["reward"] for _ in range(2)]
    together = [one for one in compare(contestants(spec, peers=["boosted"]), spec, range(8, 10)) if one["seed"] == 9]
    assert apart == [together[0]["reward"]] * 2


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--with", "forest"), "--with: no algorithm 'forest' (choose from additive, "),
        (("--peer", "DP-EBM"), "--peer: no peer of this experiment has 'DP-EBM' in its name (choose from Vowpal "),
    ],
)
def test_who_cannot_play_is_one_line(
    options: tuple[str, str], said: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    code, _, err = run(capsys, "peers", str(small_table(tmp_path, 300)), *options)
    assert code == 2
    assert err.startswith(f"privateer: {said}")
    assert err.count("\n") == 1


@pytest.mark.benchmark
@pytest.mark.parametrize("name", ["linear", "bandit"])
def test_peers_learn(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "peers", str(EXAMPLES / f"{name}.toml"), "--users", "20000", "--seeds", "1", "--json")
    found = json.loads(out)["policies"]
    assert code == 0
    assert len(found) == (10 if name == "linear" else 8)
    best = {
        library: min(one["regret_mean"] for peer, one in found.items() if peer.startswith(library)) / chance
        for chance in [found[CHANCE]["regret_mean"]]
        for library in ("Vowpal Wabbit", "mabwiser")
    }
    assert best["Vowpal Wabbit"] < 0.85
    assert best["mabwiser"] < 0.3
    assert np.isfinite([one["decisions_per_second"] for one in found.values()]).all()


@pytest.mark.benchmark
def test_all_play_one_table(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The best constant arm earns .45, and who looks at both features .9; DP-EBM has noise at epsilon 4."""
    promise = ["--set", "privacy.model=central", "--set", "privacy.epsilon=4", "--set", "privacy.delta=1e-6"]
    path, beside = small_table(tmp_path, 6000), ["--with", "partition", "--with", "bandit"]
    code, out, _ = run(capsys, "peers", str(path), *beside, *promise, "--seeds", "1", "--json")
    found = {name: one["reward_mean"] for name, one in json.loads(out)["policies"].items()}
    assert code == 0
    assert len(found) == 13
    assert found[BEST_ARM] == pytest.approx(0.45)
    assert found[CHANCE] == pytest.approx(1 / 3, abs=0.03)
    assert found["boosted trees"] > 0.8
    assert found["Vowpal Wabbit, SquareCB, pairs"] > 0.7
    assert found["mabwiser, LinTS"] > 0.55
    assert found["DP-EBM"] > 0.5
    assert found["Privateer, additive"] > 0.6


def test_there_are_peers_with_contexts_and_without() -> None:
    assert [len(peers_of(example(name))) for name in ("linear", "bandit")] == [7, 5]
    assert set(peers_of(example("linear"))) & set(peers_of(example("bandit")))
