"""Other libraries beside an experiment meet the same participants, and a missing library is named."""

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from privateer_core.errors import SpecError
from privateer_lab.baselines.libraries import LEARNING_CHUNK_SIZE, MabWiser, VowpalWabbit
from privateer_lab.baselines.peers import (
    BEST_ARM,
    RANDOM_ARMS,
    compare_policies,
    find_peers,
    select_policies,
    summarize_by_policy,
)
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
    """A stand-in for both libraries that stores the arguments of each call."""

    calls: list[Any] = field(default_factory=list)
    commands: list[str] = field(default_factory=list)

    def workspace(self, command: str) -> "Recorder":
        self.commands.append(command)
        return self

    def predict(self, table: Any = None) -> Any:
        if isinstance(table, str):
            return [0.0, 1.0]
        return [1] * len(table) if table is not None else 1

    def learn(self, *arguments: Any) -> None:
        self.calls.append(arguments)

    fit = partial_fit = learn


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    recording = Recorder()
    monkeypatch.setitem(sys.modules, "vowpalwabbit", SimpleNamespace(Workspace=recording.workspace))
    policies = SimpleNamespace(LinTS=lambda: None, ThompsonSampling=lambda: None)
    library = SimpleNamespace(MAB=lambda *_, **__: recording, LearningPolicy=policies)
    monkeypatch.setitem(sys.modules, "mabwiser", SimpleNamespace(mab=library))
    monkeypatch.setitem(sys.modules, "mabwiser.mab", library)
    return recording


def test_vowpal_wabbit_gets_arms_rewards_and_propensities(recorder: Recorder) -> None:
    spec = example("linear")
    play_together(spec, {"it": VowpalWabbit("--squarecb", spec, 0)}, 0)
    head, features = recorder.calls[0][0].split(" |f ")
    assert len(recorder.calls) == PEOPLE
    assert head in ("2:-1:1", "2:-0:1")
    assert [word.partition(":")[0] for word in features.split()] == ["x0", "x1", "x2", "x3"]
    assert all(-1 <= float(word.partition(":")[2]) <= 1 for word in features.split())


def test_vowpal_wabbit_is_asked_for_pairs_of_features_by_name(recorder: Recorder, tmp_path: Path) -> None:
    spec: Any = load_spec(small_table(tmp_path, 300), [])
    play_together(spec, {"it": find_peers(spec)["Vowpal Wabbit, SquareCB, pairs"](spec, 0)}, 0)
    assert recorder.commands == ["--cb_explore 3 --squarecb -q ff --quiet --random_seed 1"]
    features = recorder.calls[0][0].split(" |f ")[1].split()
    assert [feature[:2] for feature in features] == ["x0", "x1", "a1"]
    assert {call[0].split()[-1] for call in recorder.calls} == {"a1_0", "a1_1", "a1_2"}


@pytest.mark.parametrize("name", ["linear", "bandit"])
def test_mabwiser_learns_in_batches(name: str, recorder: Recorder) -> None:
    spec = example(name)
    play_together(spec, {"it": MabWiser(lambda policies: policies.ThompsonSampling(), spec, 0)}, 0)
    first, second = recorder.calls[:2]
    assert len(first[0]) == len(first[1]) == LEARNING_CHUNK_SIZE
    assert set(first[0]) == set(range(spec.arm_count))
    assert set(second[0]) == {1}
    assert len(first) == (3 if spec.dimension else 2)


@pytest.mark.parametrize("name", ["vowpalwabbit", "mabwiser.mab"])
def test_a_missing_library_is_one_line(name, recorder, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, name, None)
    code, _, err = run(capsys, "peers", str(EXAMPLES / "linear.toml"), "--users", str(PEOPLE), "--seeds", "1")
    package = name.partition(".")[0]
    assert (code, err) == (2, f"privateer: peers: {package} is not installed (install privateer-lab[benchmark])\n")


def test_specs_that_peers_cannot_play_are_refused() -> None:
    with pytest.raises(SpecError, match="an arm for each person"):
        select_policies(load_spec(EXAMPLES / "convex-two-point.toml", []))
    source = {
        "name": "before",
        "participants": 100,
        "epsilon": 1.0,
        "shares": [0.5, 0.5],
        "population": {"name": "peaks"},
    }
    with pytest.raises(SpecError, match="sources"):
        select_policies(make_spec({"sources": [source]}))


@pytest.mark.parametrize("model", ["local", "none"])
def test_the_experiment_itself_learns_from_private_reports(model: str, recorder: Recorder) -> None:
    """Thompson sampling of two arms a half apart: chance loses 1,000."""
    promise = ["privacy.epsilon=4"] if model == "local" else ["privacy.model=none", "privacy.epsilon="]
    spec = example("bandit", 'experiment.arms=["a","b"]', "population.gap=0.5", *promise)
    entered = select_policies(spec, peers=[RANDOM_ARMS])
    privateer = "Privateer, bandit"
    summary = summarize_by_policy(list(compare_policies(entered, spec, range(2))), PEOPLE)
    assert list(summary) == [privateer, RANDOM_ARMS]
    assert summary[RANDOM_ARMS]["regret_mean"] == pytest.approx(1000, abs=60)
    assert summary[privateer]["regret_mean"] < 250
    assert summary[privateer]["decisions_per_second"] > summary[privateer]["people_per_second"] > 0


def test_algorithms_and_peers_meet_the_same_rows(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Every row is met once, so a constant arm earns exactly the share of its class."""
    path = small_table(tmp_path, 900)
    algorithm_options = [*("--with", "partition"), *("--with", "linear"), *("--with", "bandit")]
    options = ["--peer", "constant", "--peer", "random", "--first-seed", "7", "--seeds", "2", "--json"]
    code, out, _ = run(capsys, "peers", str(path), *algorithm_options, *options)
    document = json.loads(out)
    assert code == 0
    assert (document["first_seed"], document["model"], document["people"]) == (7, "none", 900)
    algorithms = ("additive", "partition", "linear", "bandit")
    assert list(document["policies"]) == [
        *(f"Privateer, {algorithm}" for algorithm in algorithms),
        BEST_ARM,
        RANDOM_ARMS,
    ]
    for figures in document["policies"].values():
        assert figures["reward_mean"] == pytest.approx(np.mean(figures["rewards"]))
        assert figures["reward_error"] == pytest.approx(np.std(figures["rewards"], ddof=1) / 2**0.5)
        assert figures["regret_mean"] == pytest.approx(900 * (1 - figures["reward_mean"]))
    assert document["policies"][BEST_ARM]["rewards"] == [pytest.approx(0.45)] * 2
    assert document["policies"]["Privateer, additive"]["reward_mean"] > 0.5
    assert document["policies"][RANDOM_ARMS]["rewards"][0] != document["policies"][RANDOM_ARMS]["rewards"][1]


def test_a_run_depends_on_its_seed_alone(tmp_path: Path) -> None:
    spec: Any = load_spec(small_table(tmp_path, 900), [])
    policies = [select_policies(spec, peers=["boosted"]) for _ in range(3)]
    single_runs = [next(compare_policies(policies[n], spec, range(9, 10)))["reward"] for n in range(2)]
    joint_runs = [run for run in compare_policies(policies[2], spec, range(8, 10)) if run["seed"] == 9]
    assert single_runs == [joint_runs[0]["reward"]] * 2


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (("--with", "forest"), "--with: no algorithm 'forest' (choose from additive, "),
        (("--peer", "DP-EBM"), "--peer: no peer of this experiment has 'DP-EBM' in its name (choose from Vowpal "),
    ],
)
def test_a_peer_that_cannot_play_is_refused_in_one_line(options, error, capsys, tmp_path):
    code, _, err = run(capsys, "peers", str(small_table(tmp_path, 300)), *options)
    assert code == 2
    assert err.startswith(f"privateer: {error}")
    assert err.count("\n") == 1


@pytest.mark.benchmark
@pytest.mark.parametrize("name", ["linear", "bandit"])
def test_peers_learn(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "peers", str(EXAMPLES / f"{name}.toml"), "--users", "20000", "--seeds", "1", "--json")
    policies = json.loads(out)["policies"]
    assert code == 0
    assert len(policies) == (10 if name == "linear" else 8)
    best = {
        library: min(figures["regret_mean"] for peer, figures in policies.items() if peer.startswith(library)) / chance
        for chance in [policies[RANDOM_ARMS]["regret_mean"]]
        for library in ("Vowpal Wabbit", "mabwiser")
    }
    assert best["Vowpal Wabbit"] < 0.85
    assert best["mabwiser"] < 0.3
    assert np.isfinite([figures["decisions_per_second"] for figures in policies.values()]).all()


@pytest.mark.benchmark
def test_all_policies_play_the_same_table(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The best constant arm earns .45, and a policy by both features .9; DP-EBM has noise at epsilon 4."""
    promise = ["--set", "privacy.model=central", "--set", "privacy.epsilon=4", "--set", "privacy.delta=1e-6"]
    path, algorithm_options = small_table(tmp_path, 6000), ["--with", "partition", "--with", "bandit"]
    code, out, _ = run(capsys, "peers", str(path), *algorithm_options, *promise, "--seeds", "1", "--json")
    rewards = {name: figures["reward_mean"] for name, figures in json.loads(out)["policies"].items()}
    assert code == 0
    assert len(rewards) == 13
    assert rewards[BEST_ARM] == pytest.approx(0.45)
    assert rewards[RANDOM_ARMS] == pytest.approx(1 / 3, abs=0.03)
    assert rewards["boosted trees"] > 0.8
    assert rewards["Vowpal Wabbit, SquareCB, pairs"] > 0.7
    assert rewards["mabwiser, LinTS"] > 0.55
    assert rewards["DP-EBM"] > 0.5
    assert rewards["Privateer, additive"] > 0.6


def test_peers_exist_with_contexts_and_without() -> None:
    assert [len(find_peers(example(name))) for name in ("linear", "bandit")] == [7, 5]
    assert set(find_peers(example("linear"))) & set(find_peers(example("bandit")))
