"""Continual release: the privacy of all releases together, the variance of their noise, and its continuation."""

import math

import msgspec
import numpy as np
import pytest
from dp_accounting.pld.privacy_loss_distribution import from_gaussian_mechanism
from scipy import stats

from privateer_core.accounting.gaussian import gaussian_epsilon
from privateer_core.codec import decode, encode
from privateer_core.errors import SpecError
from privateer_core.mechanisms.mechanism import VectorTotal
from privateer_core.mechanisms.vectors.running_vectors import Factorization, RunningTotal, RunningVectors
from privateer_core.primitives.row_ball import RowBall
from privateer_lab.simulation.scores import SeededNoise

BALL = RowBall(8, 5, 0.0)


def release_steps(vectors: RunningVectors, steps: int, seed: int) -> np.ndarray:
    """Return releases of rounds without reports, (steps, coordinates), in grid points."""
    total, noise, sums = vectors.empty(), SeededNoise(seed), []
    for _ in range(steps):
        release, rest = vectors.release_and_carry(total, noise)
        sums.append(release.sums / vectors.ball.step)
        total = vectors.start_total_after(vectors, rest)
    return np.array(sums)


@pytest.mark.parametrize("kind", ["root", "tree"])
@pytest.mark.parametrize("steps", [1, 2, 7, 16])
def test_no_person_moves_fresh_noise_by_more_than_the_shift(kind, steps):
    """A search over rounds finds no worse pair; planted: a shift that forgets rounds after the person's."""
    factorization, rng = Factorization(kind, steps), np.random.default_rng(3)
    sensitivity, d, shifts = 30_000.0, 25, []
    for first in range(steps):
        direction = rng.normal(size=d)
        v = np.rint(direction * sensitivity / np.linalg.norm(direction))
        noise = np.rint(rng.normal(0, 1e5, (steps, d)))
        other = noise.copy()
        other[first] -= v
        fresh = [[n[k] + np.rint(factorization.row(k + 1)[:-1] @ n[:k]) for k in range(steps)] for n in (noise, other)]
        shifts.append(float(np.linalg.norm(np.array(fresh[0]) - np.array(fresh[1]))))
    max_shift = factorization.sensitivity(sensitivity, d)
    assert 0.999 * max_shift <= max(shifts) + math.sqrt(d * steps) + 1
    assert max(shifts) <= max_shift + math.sqrt(d)  # v is rounded
    assert steps == 1 or max(shifts) > 1.05 * sensitivity


@pytest.mark.parametrize("kind", ["root", "tree"])
def test_epsilon_is_that_of_an_established_accountant(kind):
    """Each step is a Gaussian mechanism of its own sensitivity; planted: the accounting of a single step."""
    vectors = RunningVectors.from_promise(RowBall(1, 5, 0.0), 1.0, 1e-6, kind, 12)
    column = [vectors.factorization.row(step)[0] for step in range(1, 13)]
    standard_deviation, sensitivity = vectors.standard_deviation, vectors.ball.sensitivity
    composed = None
    for weight in column:
        if weight:
            step = from_gaussian_mechanism(
                standard_deviation / (weight * sensitivity), value_discretization_interval=1e-3
            )
            composed = step if composed is None else composed.compose(step)
    oracle = composed.get_epsilon_for_delta(1e-6)
    assert oracle == pytest.approx(1.0, abs=0.02)
    assert vectors.release_event.sensitivity / sensitivity == pytest.approx(math.hypot(*column), rel=1e-3)
    assert gaussian_epsilon(1e-6, standard_deviation, sensitivity) < 0.75


@pytest.mark.parametrize("kind", ["root", "tree"])
def test_noise_of_sums_has_the_stated_variance(kind):
    """Chi-square of 40 coordinates in 8 runs at 1e-5 each step; planted: noise that adds up, as that of epochs does."""
    running_vectors, steps = RunningVectors(BALL, 20_000.0, kind, 32), (1, 2, 7, 16, 31, 32)
    sums = np.concatenate([release_steps(running_vectors, 32, seed).cumsum(axis=0) for seed in range(8)], axis=1)
    for step in steps:
        ratio = np.square(sums[step - 1]).sum() / running_vectors.standard_deviation**2
        low, high = (stats.chi2.ppf(q, sums.shape[1]) for q in (5e-6, 1 - 5e-6))
        assert low < ratio / running_vectors.factorization.variance(step) < high
        assert step < 7 or not low < ratio / step < high or kind == "tree"
    standard_deviation = RunningVectors(BALL, 20_000.0, kind, 1).standard_deviation
    assert standard_deviation == running_vectors.standard_deviation


def test_the_root_has_less_noise_than_the_tree_and_far_less_than_epochs():
    for steps in (30, 1000):
        root, tree = (Factorization(kind, steps) for kind in ("root", "tree"))
        cost = {f.kind: f.sensitivity(1.0, 0) ** 2 * max(map(f.variance, range(1, steps + 1))) for f in (root, tree)}
        assert cost["root"] < 0.4 * cost["tree"]
        assert cost["root"] < 0.2 * steps


def test_noise_goes_on_where_the_same_mechanism_left_it_and_begins_anew_otherwise():
    running_vectors = RunningVectors(BALL, 20_000.0, "root", 3)
    release, rest = running_vectors.release_and_carry(running_vectors.empty(), SeededNoise(1))
    following = decode(encode(running_vectors.start_total_after(running_vectors, rest)), RunningTotal)
    assert (release.step, following.reports) == (1, 0)
    assert not following.sums.any()
    assert (following.noise == rest.noise).all()
    assert running_vectors.release_and_carry(following, SeededNoise(2))[0].step == 2
    for other in (
        msgspec.structs.replace(running_vectors, standard_deviation=21_000.0),
        msgspec.structs.replace(running_vectors, steps=4),
        msgspec.structs.replace(running_vectors, ball=RowBall(4, 10, 0.0)),
    ):
        assert len(other.start_total_after(running_vectors, rest).noise) == 0
    assert len(running_vectors.start_total_after(running_vectors, VectorTotal(0, np.zeros(40, np.int64))).noise) == 0


@pytest.mark.parametrize("kind", ["root", "tree"])
def test_noise_goes_on_after_another_machine(kind):
    """The mechanism may differ in its last digits; planted: a larger difference."""
    vectors = RunningVectors.from_promise(BALL, 1.0, 1e-6, kind, 3)
    assert float(f"{vectors.standard_deviation:.6g}") == vectors.standard_deviation
    _, rest = vectors.release_and_carry(vectors.empty(), SeededNoise(1))
    for factor, steps in ((1 - 1e-12, 1), (1 + 1e-12, 1), (1 + 1e-5, 0)):
        other = msgspec.structs.replace(vectors, standard_deviation=factor * vectors.standard_deviation)
        assert len(other.start_total_after(vectors, rest).noise) == steps


def test_after_the_last_step_noise_begins_anew():
    running_vectors = RunningVectors(BALL, 20_000.0, "root", 2)
    total, steps = running_vectors.empty(), []
    for seed in range(5):
        release, rest = running_vectors.release_and_carry(total, SeededNoise(seed))
        total = running_vectors.start_total_after(running_vectors, rest)
        steps.append(release.step)
    assert steps == [1, 2, 1, 2, 1]


def test_a_round_that_is_given_up_takes_nothing_from_the_noise():
    running_vectors = RunningVectors(BALL, 20_000.0, "root", 3)
    _, rest = running_vectors.release_and_carry(running_vectors.empty(), SeededNoise(1))
    filled = running_vectors.merge(
        running_vectors.start_total_after(running_vectors, rest), VectorTotal(2, np.ones(40, np.int64))
    )
    resumed = running_vectors.start_total_after(running_vectors, filled)
    assert resumed.reports == 0
    assert not resumed.sums.any()
    assert (resumed.noise == rest.noise).all()


def test_impossible_parameters_are_refused():
    with pytest.raises(SpecError) as refused:
        RunningVectors(RowBall(1 << 10, 1 << 6, 0.0), 20_000.0, "root", 17)
    assert (refused.value.field, "1 to 16" in str(refused.value)) == ("steps", True)
    for kind, steps, field in (("root", 0, "steps"), ("log", 3, "kind")):
        with pytest.raises(SpecError) as refused:
            Factorization(kind, steps)
        assert refused.value.field == field
    with pytest.raises(SpecError) as refused:
        RunningVectors.from_promise(BALL, 31.0, 1e-6, "root", 3)
    assert refused.value.field == "epsilon"
