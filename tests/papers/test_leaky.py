"""The published code: noise for the bins that people are in and no other, and regret close to the published figures."""

import numpy as np
import pytest

from privateer_papers.paper_1.baseline import Leaky, Printed
from tests.support.baselines import one_round, regrets
from tests.support.specs import make_spec
from tests.support.statistics import centred

PUBLISHED = {
    (10_000, 1): (3879, 76),
    (10_000, 2): (3333, 123),
    (10_000, 4): (2388, 112),
    (10_000, 8): (1675, 56),
    (80_000, 1): (17384, 1298),
    (80_000, 2): (12858, 1158),
    (80_000, 4): (6799, 567),
    (80_000, 8): (4037, 233),
    (160_000, 1): (34751, 3560),
    (160_000, 2): (19771, 2114),
    (160_000, 4): (10131, 520),
    (160_000, 8): (5424, 487),
}
"""Regret and half its 95 % interval in the authors' logs (paper1_published_regret.csv: no auxiliary data, 30 seeds)."""


def halved_baseline(epsilon: float, seed: int) -> Leaky:
    """Return a baseline with two bins, the left and the right half, before the first report."""
    baseline = Leaky(make_spec({"privacy.epsilon": epsilon, "experiment.horizon": 80_000}), seed)
    baseline.bins.halve(np.array([0]), np.array([0]))
    baseline.people = np.zeros(2)
    baseline.active = np.ones((2, 3), bool)
    baseline.counts, baseline.rewards, baseline.u, baseline.v, baseline.w, baseline.means = np.zeros((6, 2, 3))
    return baseline


def left_half_counts(epsilon: float, people: int, rounds: int) -> np.ndarray:
    """Noise that is added to counts when everybody is in the left half: (rounds, bins * arms)."""
    noise = []
    for seed in range(rounds):
        baseline = halved_baseline(epsilon, seed)
        arms = one_round(baseline, np.full((people, 2), 0.25), np.zeros(people))
        visits = np.stack([np.bincount(arms, minlength=3), np.zeros(3)])
        noise.append((baseline.counts - visits).ravel())
    return np.array(noise)


def test_a_bin_without_people_has_no_noise_which_is_the_leak():
    noise = left_half_counts(1.0, 50, 20)
    assert (noise[:, 3:] == 0).all()
    assert (noise[:, :3] != 0).all()


def test_a_bin_with_people_has_a_laplace_of_scale_4_over_epsilon_for_each():
    """600 rounds, means and variances of 3 arms; each fails a right distribution with probability 1e-6."""
    noise = left_half_counts(2.0, 50, 600)[:, :3]
    assert centred(noise, np.zeros(3))
    assert centred(noise**2, np.full(3, 50 * 2 * (4 / 2.0) ** 2))


def test_noise_of_twice_the_scale_is_caught():
    """Planted: noise for epsilon 1 where epsilon 2 is promised."""
    noise = left_half_counts(1.0, 50, 600)[:, :3]
    assert not centred(noise**2, np.full(3, 50 * 2 * (4 / 2.0) ** 2))


def test_sums_are_summed_again():
    """Without noise and past the warm start, the third round counts the first one's people a third time."""
    baseline = Leaky(make_spec({"privacy.epsilon": 16.0, "experiment.horizon": 80_000}), 0)
    baseline.epsilon = 1e9
    baseline.warm = 0
    baseline.deepest = 0
    arms = [one_round(baseline, np.full((90, 2), 0.25), np.full(90, 0.5)) for _ in range(3)]
    sums = sum((3 - k) * np.bincount(played, minlength=3) for k, played in enumerate(arms))
    assert baseline.u[0] == pytest.approx(sums, rel=1e-6)
    assert baseline.v[0] == pytest.approx(sums / 2, rel=1e-6)


def is_close_to_published(people: int, epsilon: int, seeds: int) -> bool:
    """Whether our mean is within 12 % of the published one, plus 3 deviations of the difference of the means."""
    regret, (published, half_width) = regrets("leaky", people, epsilon, seeds), PUBLISHED[people, epsilon]
    deviation = np.hypot(regret.std(ddof=1) / np.sqrt(seeds), half_width / 1.96)
    return bool(abs(regret.mean() - published) < 0.12 * published + 3 * deviation)


@pytest.mark.parametrize("epsilon", [1, 2, 4, 8])
def test_published_regret_of_10_000_people(epsilon):
    assert is_close_to_published(10_000, epsilon, 12)


def test_honest_noise_is_caught(monkeypatch):
    """Planted: noise of everybody in every bin, as the paper asks for, has far more regret than was published."""
    name, draw = "_draw_laplace_sums", Leaky._draw_laplace_sums
    monkeypatch.setattr(Leaky, name, lambda self, people: draw(self, np.full_like(people, self.batch)))
    assert not is_close_to_published(10_000, 8, 6)


@pytest.mark.nightly
@pytest.mark.parametrize(("people", "epsilon"), [cell for cell in PUBLISHED if cell[0] > 10_000])
def test_published_regret_at_length(people, epsilon):
    assert is_close_to_published(people, epsilon, 30)


def noiseless_printed(seed=0, **changes):
    """Algorithms 1 and 2 as printed, with hardly any noise."""
    baseline = Printed(make_spec({"privacy.epsilon": 16.0, "experiment.horizon": 80_000, **changes}), seed)
    baseline.epsilon = 1e9
    return baseline


def test_as_printed_a_bin_is_halved_once_one_arm_is_narrow():
    """At d = 2 the first bin is halved at a radius below 2 sqrt(2), with 5 plays of one arm of three.

    C_n is 2 log2(80,000) = 32.6, so that 5 plays have the radius sqrt(32.6 / 5) = 2.55, and 4 have 2.86.
    """
    for plays, is_halved in ((4, False), (5, True)):
        baseline = noiseless_printed()
        baseline.open(plays)
        baseline.located = np.zeros(plays, int)
        baseline.learn(None, np.zeros(plays, int), np.full(plays, 0.5))
        baseline.close()
        assert (len(baseline.bins) == 2) == is_halved


def test_as_printed_the_edge_is_drawn_at_random():
    """Either edge is the first for at least 5 of 40 seeds; a correct draw fails once in 10 million runs."""
    axes = []
    for seed in range(40):
        baseline = noiseless_printed(seed)
        one_round(baseline, np.full((90, 2), 0.25), np.full(90, 0.5))
        axes.append(int(baseline.bins.upper[0].argmin()))
    assert min(axes.count(0), axes.count(1)) >= 5


def test_as_printed_everybody_adds_noise_to_every_sum():
    """4,200 sums of 50 people at epsilon 1, of variance 2 (4 / epsilon)^2 each: within 8 standard errors."""
    noise = []
    for seed in range(700):
        baseline = Printed(make_spec({"privacy.epsilon": 1.0, "experiment.horizon": 80_000}), seed)
        baseline.deepest = 0
        baseline.open(50)
        baseline.close()
        noise += [*baseline.counts[0], *baseline.rewards[0]]
    assert np.square(noise).mean() == pytest.approx(50 * 2 * 16, rel=0.2)
