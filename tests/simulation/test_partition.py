"""Whole experiments in one process: the partition learner learns, keeps its proved promise, and runs at every size."""

import numpy as np
import pytest
from scipy import stats

from privateer_client.population.peaks import Peaks
from tests.support.people import bumps, rounds
from tests.support.specs import SHUFFLE, make_spec


def regret(spec, means, seed):
    """Expected reward lost by the played rounds and by uniform play, per person, on 4,000 fresh people a round."""
    rng = np.random.default_rng([seed, 9])
    lost = uniform = people = 0.0
    for played in rounds(spec, means, seed):
        contexts = rng.random((500, spec.dimension))
        truth = means(contexts)
        arms = played.policy.choose(contexts, rng.integers(0, 2**32, 500, dtype=np.uint32))
        batch = played.policy.terms.batch
        lost += batch * (truth.max(axis=1) - truth[np.arange(500), arms]).mean()
        uniform += batch * (truth.max(axis=1) - truth.mean(axis=1)).mean()
        people += batch
    return lost / people, uniform / people


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_peaks_are_learned(seed):
    """Epsilon 4, 20,000 people in rounds of 250: less than a third of the uniform policy's regret."""
    spec = make_spec({"privacy.epsilon": 4.0, "experiment.round_size": 250})
    lost, uniform = regret(spec, Peaks(3).means, seed)
    assert uniform == pytest.approx(0.41388, abs=0.02)
    assert lost < uniform / 3


def test_a_learner_that_learns_nothing_is_caught():
    """Planted: rewards that are noise leave regret where the uniform policy's is."""
    spec = make_spec({"privacy.epsilon": 4.0, "experiment.round_size": 250})
    rng = np.random.default_rng(0)
    means = Peaks(3).means
    lost = uniform = 0.0
    for played in rounds(spec, lambda contexts: np.full((len(contexts), 3), 0.5), 0):
        contexts = rng.random((500, 2))
        truth = means(contexts)
        arms = played.policy.choose(contexts, rng.integers(0, 2**32, 500, dtype=np.uint32))
        lost += (truth.max(axis=1) - truth[np.arange(500), arms]).mean()
        uniform += (truth.max(axis=1) - truth.mean(axis=1)).mean()
    assert lost > uniform / 2


def test_shuffle_beats_local_at_equal_epsilon():
    changes = {"experiment.round_size": 1000, "experiment.horizon": 20_000}
    local = [regret(make_spec(changes), Peaks(3).means, seed)[0] for seed in range(3)]
    shuffled = [regret(make_spec({**changes, **SHUFFLE}), Peaks(3).means, seed)[0] for seed in range(3)]
    assert np.mean(shuffled) < np.mean(local)


@pytest.mark.parametrize("dimension", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("arms", [2, 5, 16])
@pytest.mark.parametrize("calibration", ["tight", "published"])
def test_every_size_runs(dimension, arms, calibration):
    changes = {"privacy.epsilon": 8.0, "privacy.calibration": calibration, "experiment.horizon": 6000}
    *_, last = rounds(make_spec(changes, dimension=dimension, arms=arms), bumps(arms), 1)
    assert last.state.seen == 6000
    assert last.state.active.any(axis=1).all()
    assert last.state.active.shape == (len(last.state.depths), arms)


def wrongly_dropped(spec, means, seed, sample=None):
    """Whether an arm was dropped in a bin where it is the best somewhere, on a fine grid."""
    axis = (np.arange(256) + 0.5) / 256
    grid = np.stack(np.meshgrid(*[axis] * spec.dimension, indexing="ij"), axis=-1).reshape(-1, spec.dimension)
    best = means(grid).argmax(axis=1)
    *_, last = rounds(spec, means, seed, sample)
    learner_policy = last.policy
    final = type(learner_policy)(
        **{
            **vars_of(learner_policy),
            "depths": last.state.depths,
            "paths": last.state.paths,
            "active": last.state.active,
        }
    )
    return not last.state.active[final.locate(grid), best].all(), int((~last.state.active).sum())


def vars_of(policy):
    return {name: getattr(policy, name) for name in type(policy).__dataclass_fields__}


def steep(contexts):
    """Two arms that cross at .4 with slopes 1 and -1 and differ by up to .9; Lipschitz with constant 1."""
    gap = np.clip(contexts[:, 0] - 0.4, -0.45, 0.45)
    return np.stack([0.5 + gap, 0.5 - gap], axis=1)


def test_proved_never_drops_an_arm_that_is_best_somewhere():
    """Failure .05 promised; 40 runs. Were the chance .05, more than 9 would fail with chance 1e-5."""
    spec = make_spec(
        {
            "algorithm.confidence": "proved",
            "privacy.epsilon": 16.0,
            "experiment.horizon": 400_000,
            "experiment.round_size": 20_000,
        },
        dimension=1,
        arms=2,
    )
    outcomes = [wrongly_dropped(spec, steep, seed) for seed in range(40)]
    failures = sum(wrong for wrong, _ in outcomes)
    assert stats.binom.sf(failures - 1, 40, 0.05) > 1e-5
    assert failures <= 9
    assert sum(dropped for _, dropped in outcomes) > 0, "the test must see arms dropped, or it shows nothing"


def test_dropping_too_boldly_is_caught(monkeypatch):
    """Planted: radii of no width and bins of no bias drop arms that are best."""
    from privateer_server.learners.partition import PartitionLearner

    bold = PartitionLearner._proved_radius
    monkeypatch.setattr(PartitionLearner, "_proved_radius", lambda self, state: 0.05 * bold(self, state))
    monkeypatch.setattr(PartitionLearner, "_surviving", bare_surviving)
    changes = {"algorithm.confidence": "proved", "privacy.epsilon": 16.0, "experiment.round_size": 5000}
    spec = make_spec({**changes, "experiment.horizon": 100_000}, dimension=1, arms=2)
    failures = sum(wrongly_dropped(spec, steep, seed)[0] for seed in range(10))
    assert stats.binom.sf(failures - 1, 10, 0.05) < 1e-5


def bare_surviving(self, state):
    mean = state.moment / np.where(state.precision > 0, state.precision, 1.0)
    best = np.where(state.active, mean, -np.inf).max(axis=1, keepdims=True)
    return state.active & (best - mean <= 0.05 * self._proved_radius(state))


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize(
    "changes", [{}, {"privacy.epsilon": 4.0}, {**SHUFFLE, "experiment.round_growth": 0.07}], ids=str
)
def test_peaks_at_length(changes, seed):
    """80,000 people: no seed is stuck at half of the uniform policy's regret."""
    size = 1000 if "privacy.model" in changes else 100
    spec = make_spec({"experiment.horizon": 80_000, "experiment.round_size": size, **changes})
    lost, uniform = regret(spec, Peaks(3).means, seed)
    assert lost < uniform / 2


@pytest.mark.nightly
def test_proved_holds_at_length_on_uneven_people():
    """Density up to 8 (declared), 100 runs at failure .05: at most 15 may fail (chance 1e-4 at .05)."""

    def sample(rng, n):
        return np.where(rng.random((n, 1)) < 0.875, rng.random((n, 1)) / 8, rng.random((n, 1)))

    changes = {
        "algorithm.confidence": "proved",
        "algorithm.density_bound": 8.0,
        "privacy.epsilon": 16.0,
        "experiment.horizon": 400_000,
        "experiment.round_size": 10_000,
    }
    spec = make_spec(changes, dimension=1, arms=2)
    assert sum(wrongly_dropped(spec, steep, seed, sample)[0] for seed in range(100)) <= 15
