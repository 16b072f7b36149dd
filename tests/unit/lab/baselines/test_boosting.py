"""Boosted trees beside an experiment: the times and rows of each refit, and the privacy budget of DP-EBM."""

import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from privateer_core.accounting.accountant import account
from privateer_core.accounting.events import Gaussian
from privateer_lab.baselines.libraries import BoostedTrees, EbmBudget, PrivateBoosting
from privateer_lab.baselines.run import PlainColumns, Visitors, play_together
from privateer_lab.cli.input_files import load_spec
from tests.support.small_table import small_table
from tests.support.specs import make_spec

PEOPLE = 6000
CENTRAL = ["privacy.model=central", "privacy.epsilon=1", "privacy.delta=1e-6"]


def small(folder: Path, *settings: str) -> Any:
    return load_spec(small_table(folder, PEOPLE), list(settings))


class RecordedModel:
    """A stand-in for DP-EBM of interpret that stores its arguments and predicts the mean reward of an arm."""

    instances: list["RecordedModel"]

    def __init__(self, **options: Any) -> None:
        self.options = options
        self.instances.append(self)

    def fit(self, table: Any, bits: Any) -> "RecordedModel":
        self.table, self.bits = table, bits
        return self

    def predict_proba(self, table: Any) -> Any:
        return np.tile([1 - self.bits.mean(), self.bits.mean()], (len(table), 1))


@pytest.fixture
def fitted(monkeypatch: pytest.MonkeyPatch) -> list[RecordedModel]:
    kind: Any = type("Recording", (RecordedModel,), {"instances": []})
    monkeypatch.setitem(sys.modules, "interpret", SimpleNamespace())
    monkeypatch.setitem(sys.modules, "interpret.privacy", SimpleNamespace(DPExplainableBoostingClassifier=kind))
    instances: list[RecordedModel] = kind.instances
    return instances


def test_trees_are_refitted_when_the_people_have_grown_by_half(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    fit = BoostedTrees.fit
    monkeypatch.setattr(BoostedTrees, "fit", lambda self, rows: sizes.append(len(rows.arms)) or fit(self, rows))
    spec = small(tmp_path, "experiment.round_size=6000")
    (run,) = play_together(spec, {"it": BoostedTrees(spec, 0)}, 0)
    assert sizes == [500, 1000, 1500, 2500, 4000, 6000]
    assert run.reward > 0.75


def test_an_arm_without_rows_has_an_estimate_of_a_half(tmp_path: Path) -> None:
    spec = small(tmp_path)
    trees = BoostedTrees(spec, 0)
    people = np.array([[0.2, 0.0, 0.0, 0.0]] * 60)
    trees.next_fit_size = 60
    trees.learn(Visitors(0, people, people, people), np.array([0] * 30 + [1] * 30), np.array([1.0] * 30 + [0.0] * 30))
    assert trees.estimates(trees.columns.table(people[:1])) == pytest.approx(np.array([[1.0, 0.0, 0.5]]))


def test_a_row_is_in_one_fit_of_one_arm(tmp_path: Path, fitted: list[RecordedModel]) -> None:
    """People before each fit: 1,000, 2,000, 4,000; those after the last are in none."""
    spec = small(tmp_path, *CENTRAL, "experiment.round_size=6000")
    play_together(spec, {"it": PrivateBoosting(spec, 0)}, 0)
    assert len(fitted) == 3 * spec.arm_count
    rows = [sum(len(model.table) - 2 for model in fitted[start : start + 3]) for start in (0, 3, 6)]
    assert rows == [1000, 1000, 2000]
    # A number to four digits says which of the people a row is about; a few have the same one.
    numbers = Counter(row[0] for model in fitted for row in model.table[:-2] if not row[1])
    assert max(numbers.values()) <= 4


def test_dp_ebm_gets_the_budget_of_the_accountant(tmp_path: Path, fitted: list[RecordedModel]) -> None:
    spec = small(tmp_path, *CENTRAL)
    play_together(spec, {"it": PrivateBoosting(spec, 0)}, 0)
    options = fitted[0].options
    assert (options["epsilon"], options["delta"]) == (EbmBudget(1.0, 1e-6).library_epsilon, 1e-6)
    assert options["feature_types"] == ["continuous", "continuous", "nominal"]
    assert (options["privacy_bounds"] == [[0, 1]] * 3).all()
    for model in fitted:
        assert set(model.bits.tolist()) == {False, True}


def test_estimates_are_those_of_all_fits_by_their_rows(tmp_path: Path, fitted: list[RecordedModel]) -> None:
    spec = small(tmp_path, *CENTRAL)
    private_boosting = PrivateBoosting(spec, 0)
    private_boosting.models = [[(9, Fitting(0.2)), (39, Fitting(0.7))], [(0, Fitting(0.3))], [(4, Fitting(1.0))]]
    assert private_boosting.estimates(np.zeros((1, 3))) == pytest.approx(np.array([[0.6, 0.3, 1.0]]))


class Fitting:
    def __init__(self, share: float) -> None:
        self.share = share

    def predict_proba(self, table: Any) -> Any:
        return np.full((len(table), 2), self.share)


@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-6), (4.0, 1e-6), (0.2, 1e-9)])
def test_a_fit_keeps_the_promise_tightly(epsilon: float, delta: float) -> None:
    budget = EbmBudget(epsilon, delta)
    assert account(budget.event(budget.library_epsilon)).delta(epsilon) <= delta
    assert account(budget.event(1.001 * budget.library_epsilon)).delta(epsilon) > delta
    assert budget.library_epsilon > epsilon  # basic composition gives some away
    assert account(budget.event(2 * epsilon)).delta(epsilon) > 5 * delta


def test_columns_are_numbers_flags_and_levels() -> None:
    features = {
        "age": {"low": 0, "high": 10, "missing": True},
        "town": {"levels": ["x", "y", "z"], "missing": True},
        "size": {"levels": ["s", "m", "l"], "ordered": True},
        "yes": {"boolean": True},
    }
    spec = make_spec({"context.features": features})
    contexts = np.concatenate(
        [
            feature.encode(np.array(cells, np.float64))
            for feature, cells in zip(spec.features.values(), [[2.5, np.nan], [1, np.nan], [2, 0], [1, 0]], strict=True)
        ],
        axis=1,
    )
    columns = PlainColumns(spec)
    # Three towns and no town; the middle of the last of three sizes; yes and no.
    assert columns.levels.tolist() == [4, 2]
    assert columns.table(contexts) == pytest.approx(np.array([[0.25, 0, 5 / 6, 1, 1], [0.5, 1, 1 / 6, 3, 0]]))
    assert columns.one_hot(contexts)[0] == pytest.approx(np.array([1, -0.5, -1, 2 / 3, 0, 1, 0, 0, 0, 1]))
    assert columns.one_hot(contexts)[1] == pytest.approx(np.array([1, 0, 1, -2 / 3, 0, 0, 0, 1, 1, 0]))
    assert columns.texts(contexts)[0] == "x0:-0.5 x1:-1 x2:0.666667 a1_1 a3_1"


@pytest.mark.parametrize("kind", [BoostedTrees, PrivateBoosting])
def test_a_twentieth_of_the_participants_gets_a_random_arm(kind, tmp_path, monkeypatch):
    """A twentieth of 40,000 participants gets a random arm: .0333 of them get an inferior arm, within .004."""
    spec = small(tmp_path, *CENTRAL)
    baseline = kind(spec, 0)
    baseline.n_fits = 1
    monkeypatch.setattr(kind, "estimates", lambda _self, table: np.tile([0.1, 0.9, 0.2], (len(table), 1)))
    no_features = np.zeros((40_000, spec.dimension))
    arms = baseline.choose(Visitors(0, no_features, no_features, no_features))
    assert abs((arms != 1).mean() - 0.0333) < 0.004


@pytest.mark.benchmark
def test_the_library_adds_the_noise_that_was_accounted_for(tmp_path: Path) -> None:
    spec = small(tmp_path, *CENTRAL)
    private_boosting = PrivateBoosting(spec, 0)
    play_together(spec, {"it": private_boosting}, 0)
    models = [model for models in private_boosting.models for _, model in models]
    assert len(models) == 9
    for model in models:
        bins = model.noise_scale_binning_ / 3**0.5
        boosting = model.noise_scale_boosting_ / (model.learning_rate * (3 * model.max_rounds) ** 0.5)
        curve = account(Gaussian(1.0, float(np.hypot(1 / bins, 1 / boosting))))
        assert 0.99e-6 < curve.delta(1.0) <= 1e-6 * (1 + 1e-6)
