"""Continual release: what all releases together reveal, how little their noise adds up, and what goes on after what."""

import math

import msgspec
import numpy as np
import pytest
from dp_accounting.pld.privacy_loss_distribution import from_gaussian_mechanism
from scipy import stats

from privateer_core.accounting.gaussian import gaussian_epsilon
from privateer_core.codec import decode, encode
from privateer_core.errors import SpecError
from privateer_core.mechanisms.vectors.running_vectors import Factorization, RunningTotal, RunningVectors
from privateer_core.primitives.clipping import Ball, VectorTotal
from privateer_lab.simulation.devices import SeededNoise

BALL = Ball("l2", 1.0, 40)


def released(one: RunningVectors, steps: int, seed: int) -> np.ndarray:
    """Releases of rounds in which nobody reports, (steps, coordinates), in grid points."""
    total, noise, found = one.empty(), SeededNoise(seed), []
    for _ in range(steps):
        release, left = one.settle(total, noise)
        found.append(release.sums / one.ball.step)
        total = one.resume(one, left)
    return np.array(found)


@pytest.mark.parametrize("kind", ["root", "tree"])
@pytest.mark.parametrize("steps", [1, 2, 7, 16])
def test_no_person_moves_fresh_noise_by_more_than_the_shift(kind, steps):
    """A search over rounds finds no worse pair; planted: a shift that forgets rounds after the person's."""
    one, rng = Factorization(kind, steps), np.random.default_rng(3)
    diameter, d, moved = 30_000.0, 25, []
    for first in range(steps):
        own = rng.normal(size=d)
        v = np.rint(own * diameter / np.linalg.norm(own))
        noise = np.rint(rng.normal(0, 1e5, (steps, d)))
        other = noise.copy()
        other[first] -= v
        fresh = [[n[k] + np.rint(one.row(k + 1)[:-1] @ n[:k]) for k in range(steps)] for n in (noise, other)]
        moved.append(float(np.linalg.norm(np.array(fresh[0]) - np.array(fresh[1]))))
    most = one.shift(diameter, d)
    assert 0.999 * most <= max(moved) + math.sqrt(d * steps) + 1
    assert max(moved) <= most + math.sqrt(d)  # v is rounded
    assert steps == 1 or max(moved) > 1.05 * diameter


@pytest.mark.parametrize("kind", ["root", "tree"])
def test_epsilon_is_that_of_an_established_accountant(kind):
    """Step by step, each a Gaussian mechanism of its own sensitivity; planted: the accounting of one step alone."""
    one = RunningVectors.running(Ball("l2", 1.0, 5), 1.0, 1e-6, kind, 12)
    column = [one.factorization.row(step)[0] for step in range(1, 13)]
    deviation, diameter = one.standard_deviation, one.ball.diameter
    composed = None
    for weight in column:
        if weight:
            step = from_gaussian_mechanism(deviation / (weight * diameter), value_discretization_interval=1e-3)
            composed = step if composed is None else composed.compose(step)
    oracle = composed.get_epsilon_for_delta(1e-6)
    assert oracle == pytest.approx(1.0, abs=0.02)
    assert one.released.sensitivity / diameter == pytest.approx(math.hypot(*column), rel=1e-3)
    assert gaussian_epsilon(1e-6, deviation, diameter) < 0.75


@pytest.mark.parametrize("kind", ["root", "tree"])
def test_noise_of_sums_has_the_stated_variance(kind):
    """Chi-square of 40 coordinates in 8 runs at 1e-5 each step; planted: noise that adds up, as that of epochs does."""
    one, steps = RunningVectors(BALL, 20_000.0, kind, 32), (1, 2, 7, 16, 31, 32)
    sums = np.concatenate([released(one, 32, seed).cumsum(axis=0) for seed in range(8)], axis=1)
    for step in steps:
        ratio = np.square(sums[step - 1]).sum() / one.standard_deviation**2
        low, high = (stats.chi2.ppf(q, sums.shape[1]) for q in (5e-6, 1 - 5e-6))
        assert low < ratio / one.factorization.variance(step) < high
        assert step < 7 or not low < ratio / step < high or kind == "tree"
    alone = RunningVectors(BALL, 20_000.0, kind, 1).standard_deviation
    assert alone == one.standard_deviation


def test_the_root_has_less_noise_than_the_tree_and_far_less_than_epochs():
    for steps in (30, 1000):
        root, tree = (Factorization(kind, steps) for kind in ("root", "tree"))
        cost = {one.kind: one.shift(1.0, 0) ** 2 * max(map(one.variance, range(1, steps + 1))) for one in (root, tree)}
        assert cost["root"] < 0.4 * cost["tree"]
        assert cost["root"] < 0.2 * steps


def test_noise_goes_on_where_the_same_mechanism_left_it_and_begins_anew_otherwise():
    one = RunningVectors(BALL, 20_000.0, "root", 3)
    release, left = one.settle(one.empty(), SeededNoise(1))
    following = decode(encode(one.resume(one, left)), RunningTotal)
    assert (release.step, following.reports) == (1, 0)
    assert not following.sums.any()
    assert (following.noise == left.noise).all()
    assert one.settle(following, SeededNoise(2))[0].step == 2
    for other in (
        msgspec.structs.replace(one, standard_deviation=21_000.0),
        msgspec.structs.replace(one, steps=4),
        msgspec.structs.replace(one, ball=Ball("l2", 2.0, 40)),
    ):
        assert len(other.resume(one, left).noise) == 0
    assert len(one.resume(one, VectorTotal(0, np.zeros(40, np.int64))).noise) == 0


@pytest.mark.parametrize("kind", ["root", "tree"])
def test_noise_goes_on_after_another_machine(kind):
    """Its mechanism may differ in its last digits; planted: one that differs by more."""
    one = RunningVectors.running(BALL, 1.0, 1e-6, kind, 3)
    assert float(f"{one.standard_deviation:.6g}") == one.standard_deviation
    _, left = one.settle(one.empty(), SeededNoise(1))
    for factor, steps in ((1 - 1e-12, 1), (1 + 1e-12, 1), (1 + 1e-5, 0)):
        other = msgspec.structs.replace(one, standard_deviation=factor * one.standard_deviation)
        assert len(other.resume(one, left).noise) == steps


def test_after_the_last_step_noise_begins_anew():
    one = RunningVectors(BALL, 20_000.0, "root", 2)
    total, steps = one.empty(), []
    for seed in range(5):
        release, left = one.settle(total, SeededNoise(seed))
        total = one.resume(one, left)
        steps.append(release.step)
    assert steps == [1, 2, 1, 2, 1]


def test_a_round_that_is_given_up_takes_nothing_from_the_noise():
    one = RunningVectors(BALL, 20_000.0, "root", 3)
    _, left = one.settle(one.empty(), SeededNoise(1))
    filled = one.merge(one.resume(one, left), VectorTotal(2, np.ones(40, np.int64)))
    again = one.resume(one, filled)
    assert again.reports == 0
    assert not again.sums.any()
    assert (again.noise == left.noise).all()


def test_what_cannot_be_is_refused():
    with pytest.raises(SpecError) as refused:
        RunningVectors(Ball("l2", 1.0, 1 << 16), 20_000.0, "root", 17)
    assert (refused.value.field, "1 to 16" in str(refused.value)) == ("steps", True)
    for kind, steps, field in (("root", 0, "steps"), ("log", 3, "kind")):
        with pytest.raises(SpecError) as refused:
            Factorization(kind, steps)
        assert refused.value.field == field
    with pytest.raises(SpecError) as refused:
        RunningVectors.running(BALL, 31.0, 1e-6, "root", 3)
    assert refused.value.field == "epsilon"
