"""Rules that allocate a round's participants to arms, from a posterior or one with a fitted prior."""

import math
from dataclasses import dataclass
from typing import Final, Self

import numpy as np
from scipy.special import betainc, betaincinv, ndtr, softmax

from privateer_core.arrays import Array, Bools
from privateer_server.algorithms.bandit.posterior import ArmPosterior

_PRIOR_STANDARD_DEVIATIONS: Final = np.geomspace(0.01, 0.5, 12)
"""Standard deviations tried for what arms differ by, in parts of the rewards' range; all as likely."""


@dataclass(frozen=True)
class FittedPosterior:
    """A mixture of normal posteriors, one for each hypothesis of how arms differ (Efron and Morris 1975).

    A hypothesis is a spread tau, and whether the leader is one of the arms that it is about or apart from them, with a
    flat prior of its own on [0, 1]: the spread of nine alike arms and a far better one would be that of none of them.
    mu has a flat prior.
    """

    weights: Array  # shape (hypotheses,): their probabilities
    # common, doubt: shape (hypotheses,): the mean of mu, and its variance
    prior_means: Array
    mu_variances: Array
    shrinkage: Array  # shape (hypotheses, arms): the part that mu has in an arm's mean, from 0 to 1
    # means, variances: shape (hypotheses, arms): of the arms, if mu is ``common``
    means: Array
    variances: Array

    @classmethod
    def from_estimates(cls, estimates: Array, variances: Array, playable: Bools) -> Self:
        """Return the posterior from estimates of arms (arms,), at least two of which are ``playable``.

        With w_k = 1 / (s_k^2 + tau^2) the evidence of a hypothesis is the product over its arms of
        sqrt(w_k / 2 pi) exp(-w_k (y_k - mu)^2 / 2), integrated over mu. The leader's alone is 1, when it is apart.

        estimates, variances: y_k and s_k^2; those of arms that are not playable do not matter, and may be infinite.
        """
        prior_variances = np.tile(_PRIOR_STANDARD_DEVIATIONS**2, 2)[:, None]
        is_member = np.tile(playable, (len(prior_variances), 1))
        is_member[len(_PRIOR_STANDARD_DEVIATIONS) :, int(np.argmax(np.where(playable, estimates, -np.inf)))] = False
        sampling_variances = np.where(playable, variances, 1.0)
        weights = np.where(is_member, 1 / (sampling_variances + prior_variances), 0.0)
        total = weights.sum(axis=1)
        prior_means = weights @ np.where(playable, estimates, 0.0) / total
        deviations = np.where(playable, estimates, 0.0) - prior_means[:, None]
        log_norms = np.log(np.where(is_member, weights / (2 * np.pi), 1.0)).sum(axis=1) - np.log(total / (2 * np.pi))
        evidence = (log_norms - (weights * deviations**2).sum(axis=1)) / 2
        shrinkage = np.where(is_member, sampling_variances / (sampling_variances + prior_variances), 0.0)
        means = prior_means[:, None] + (1 - shrinkage) * deviations
        return cls(
            softmax(evidence),
            prior_means,
            1 / total,
            shrinkage,
            means,
            np.where(is_member, shrinkage * prior_variances, sampling_variances),
        )

    @property
    def mean_rewards(self) -> Array:
        """Mean rewards (arms,), over all hypotheses."""
        return np.asarray(self.weights @ self.means)

    @property
    def standard_deviations(self) -> Array:
        """Standard deviations of mean rewards (arms,), over all hypotheses."""
        squares = self.weights @ (self.variances + self.shrinkage**2 * self.mu_variances[:, None] + self.means**2)
        return np.asarray(np.sqrt(np.maximum(squares - self.mean_rewards**2, 0.0)))

    def expected_gains(self, leader: int) -> Array:
        """Return each arm's expected positive excess over a leader, (arms,).

        The leader and the other arm are taken for independent, whatever both have of mu's error.
        """
        variances = self.variances + self.shrinkage**2 * self.mu_variances[:, None]
        gaps = self.means[:, [leader]] - self.means
        return np.asarray(self.weights @ expected_positive_part(gaps, np.sqrt(variances + variances[:, [leader]])))

    def sample(self, n_samples: int, rng: np.random.Generator) -> Array:
        """Draw samples of all arms' mean rewards, (samples, arms): a hypothesis, its mu, and the arms around it."""
        hypotheses = rng.choice(len(self.weights), size=n_samples, p=self.weights)
        shifts = np.sqrt(self.mu_variances[hypotheses]) * rng.standard_normal(n_samples)
        arm_noise = np.sqrt(self.variances[hypotheses]) * rng.standard_normal((n_samples, self.means.shape[1]))
        return np.asarray(self.means[hypotheses] + self.shrinkage[hypotheses] * shifts[:, None] + arm_noise)


def expected_positive_part(gaps: Array, standard_deviations: Array) -> Array:
    """Return the expectation of the positive part of normal variables of mean -``gaps``."""
    z = gaps / standard_deviations
    return np.asarray(standard_deviations * np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi) - gaps * ndtr(-z))


_N_BISECTIONS: Final = 60  # halvings of an interval, after which nothing is left of it
_RANDOM_ARM_SHARE: Final = 0.2
"""Share of people who play arms at random while the best one is looked for: a fifth saves a tenth of the people."""
_RARE_REWARD_GAIN_FACTOR: Final = 8
"""Where rewards are rare, what an arm may still gain counts for so many times as much: few of them mislead."""
_MIN_ARMS_FOR_FITTED_PRIOR: Final = 10
_ELIMINATION_STANDARD_DEVIATIONS: Final = 2.0
"""Standard deviations behind the leader within which an arm of many may only have been unlucky, and is kept."""
_MIN_REWARDS_PER_ARM: Final = 6000
"""Arms, and people by arm in rewards as clear as their own, from which on a prior is fitted: fewer misjudge it."""


def has_enough_to_fit_prior(posterior: ArmPosterior, playable: Bools, horizon: int) -> bool:
    """Whether there are enough arms, and rewards by arm to the horizon, to fit a prior of arms.

    A report of an arm is worth 1 / c^2 rewards. Where rewards are rare they are far from normal, and tell too little.
    """
    n_arms = int(playable.sum())
    rewards_per_arm = horizon / (n_arms * float(np.square(posterior.attenuation[playable]).mean()))
    return n_arms >= _MIN_ARMS_FOR_FITTED_PRIOR and rewards_per_arm > _MIN_REWARDS_PER_ARM and not posterior.is_rare


def is_worth_exploring(posterior: ArmPosterior, playable: Bools, n_remaining: float) -> Bools:
    """Return which arms, (arms,), can gain more from exploration than it costs; the leader always can.

    To halve the variance of an arm's mean takes as many people again as have reported on it, each of whom is expected
    to lose its gap. The ``n_remaining`` people to come cannot gain more by it than the expectation, under a normal
    posterior, of what the arm has above the leader, if that is positive. Noise may leave an estimate below 0: the mean
    is not, so that such an arm is behind the leader by no more than the leader has.
    """
    means = np.clip(posterior.means, 0.0, 1.0)
    leader = int(np.argmax(np.where(playable, posterior.means, -np.inf)))
    gaps = np.maximum(means[leader] - means, 0.0)
    variance = np.minimum(posterior.variances, 1e12)
    gain = expected_positive_part(gaps, np.sqrt(variance + variance[leader]))
    return np.asarray(playable & ((n_remaining * gain > posterior.people * gaps) | (np.arange(len(gaps)) == leader)))


def thompson(posterior: ArmPosterior, playable: Bools, n_samples: int, n_remaining: float, seed: int) -> Array:
    """Return the share of posterior samples in which each arm is best: Thompson sampling of a batch.

    The posterior is that of as many bits, under a uniform prior on their mean. Arms are left out that are no longer
    worth exploring, with ``n_remaining`` participants to come.
    """
    counts, attenuation = posterior.counts, posterior.attenuation
    bits = np.clip(0.5 + (posterior.means - 0.5) / attenuation, 0.0, 1.0)
    alphas, betas = 1 + counts.bounded_trials * bits, 1 + counts.bounded_trials * (1 - bits)
    # Bits of a faint coin may be such as no mean from 0 to 1 has.
    low, high = (betainc(alphas, betas, 0.5 + sign / (2 * attenuation)) for sign in (-1, 1))
    quantiles = low + (high - low) * np.random.default_rng(seed).random((n_samples, len(bits)))
    samples = 0.5 + attenuation * (betaincinv(alphas, betas, quantiles) - 0.5)
    gain_factor = _RARE_REWARD_GAIN_FACTOR if posterior.is_rare else 1
    active = is_worth_exploring(posterior, playable, gain_factor * n_remaining)
    return _best_arm_shares(samples, active)


def thompson_fitted_prior(
    posterior: ArmPosterior, playable: Bools, n_samples: int, n_remaining: float, seed: int
) -> Array:
    """Return the share of posterior samples in which each arm is best, under an empirical Bayes prior.

    An arm is dropped as by `is_worth_exploring`, with the gains under this posterior, but only if it is more than two
    standard deviations behind the leader. Among thirty similar arms one is that far behind by chance, and dropping the
    best arm cannot be undone. Keeping such an arm costs little, because it is best in few samples.
    """
    fitted = FittedPosterior.from_estimates(posterior.means, posterior.variances, playable)
    leader = int(np.argmax(np.where(playable, fitted.mean_rewards, -np.inf)))
    gaps, deviations = fitted.mean_rewards[leader] - fitted.mean_rewards, fitted.standard_deviations
    is_close = gaps < _ELIMINATION_STANDARD_DEVIATIONS * np.sqrt(deviations**2 + deviations[leader] ** 2)
    active = playable & (is_close | (n_remaining * fitted.expected_gains(leader) > posterior.people * gaps))
    active[leader] = True
    return _best_arm_shares(fitted.sample(n_samples, np.random.default_rng(seed)), active)


def _best_arm_shares(samples: Array, active: Bools) -> Array:
    """Return the share of samples (samples, arms) in which each active arm is best."""
    best = np.where(active, samples, -np.inf).argmax(axis=1)
    return np.bincount(best, minlength=len(active)) / len(samples)


def kl_ucb(posterior: ArmPosterior, playable: Bools, n_reported: int, batch: int) -> Array:
    """Return shares that equalize the indexes of KL-UCB (Garivier and Cappe 2011) after ``batch`` reports.

    An arm's index is the largest mean whose divergence from its bits, times their number, is at most ln t. Estimates
    stand still within a batch, so each arm gets the people that lower its index to the common level.
    """
    attenuation, bits = posterior.attenuation, np.clip(0.5 + (posterior.means - 0.5) / posterior.attenuation, 0.0, 1.0)
    log_time, low = math.log(n_reported + batch), float(posterior.means[playable].max())
    high = 0.5 + float(attenuation.max())

    def count_required(level: float) -> Array:
        bit_bounds = np.clip(0.5 + (level - 0.5) / attenuation, 0.0, 1.0)
        total_people = log_time / np.maximum(_kl_divergence(bits, np.maximum(bit_bounds, bits)), 1e-300)
        return np.where(playable, np.maximum(total_people - posterior.people, 0.0), 0.0)

    for _ in range(_N_BISECTIONS):
        level = (low + high) / 2
        low, high = (level, high) if count_required(level).sum() > batch else (low, level)
    people = count_required(high)
    # What rounding leaves goes to the leader, whose index is the last to come down.
    people[int(np.argmax(np.where(playable, posterior.means, -np.inf)))] += max(0.0, batch - float(people.sum()))
    return np.asarray(people / people.sum())


def _kl_divergence(left: Array, right: Array) -> Array:
    epsilon = 1e-12
    p, q = np.clip(left, epsilon, 1 - epsilon), np.clip(right, epsilon, 1 - epsilon)
    return np.asarray(p * np.log(p / q) + (1 - p) * np.log((1 - p) / (1 - q)))


def tsallis(losses: Array, playable: Bools, learning_rate: float, min_share: float) -> Array:
    """Return the shares of Tsallis-INF (Zimmert and Seldin 2021), at least ``min_share`` for each playable arm.

    w_a = 4 / (rate (L_a - x))^2, where x makes their sum 1.
    """
    centred = losses[playable] - losses[playable].min()  # what all have in common would cost the equation its digits
    low, high = -2 * math.sqrt(len(centred)) / learning_rate, -2 / learning_rate
    for _ in range(_N_BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if (4 / (learning_rate * (centred - middle)) ** 2).sum() < 1 else (low, middle)
    shares = 4 / (learning_rate * (centred - high)) ** 2
    weights = np.zeros(len(losses))
    weights[playable] = min_share + (1 - min_share * len(centred)) * shares / shares.sum()
    return weights


def track_and_stop(posterior: ArmPosterior, playable: Bools, leader: int, batch: int) -> Array:
    """Return shares that track the optimal proportions for best-arm identification (Garivier and Kaufmann 2016).

    For normal estimates: with y such that the r_a = y / (d_a - y) have squares of sum 1, arm a gets r_a times the
    people of the best one, where d_a is the squared gap. A gap counts for what it is at least, and some people play
    arms at random, so that no arm is left out because of a few bad reports.
    """
    variance = 1 / np.maximum(posterior.precision, 1e-12)
    pair_variances = variance + variance[leader]
    min_gaps = np.maximum(
        np.abs(posterior.interval_centres[leader] - posterior.interval_centres) - np.sqrt(pair_variances), 0.0
    )
    gaps = min_gaps**2 + pair_variances
    is_rival = playable & (np.arange(len(gaps)) != leader)
    low, high = 0.0, float(gaps[is_rival].min())
    for _ in range(_N_BISECTIONS):
        y = (low + high) / 2
        low, high = (y, high) if ((y / np.maximum(gaps[is_rival] - y, 1e-300)) ** 2).sum() < 1 else (low, y)
    ratios = np.where(is_rival, low / np.maximum(gaps - low, 1e-300), 0.0)
    ratios[leader] = 1.0
    return _catch_up(posterior, playable, ratios, batch)


def track_boundary(posterior: ArmPosterior, playable: Bools, is_best: Bools, batch: int) -> Array:
    """Return shares that track the proportions 1 / gap^2 for a set of best arms (Bubeck, Wang and Viswanathan 2013).

    An arm in the set is compared with the best one outside, all others with the worst one inside; gaps as in
    `track_and_stop`.
    """
    variance, means = 1 / np.maximum(posterior.precision, 1e-12), posterior.interval_centres
    worst_inside = int(np.argmin(np.where(is_best, means, np.inf)))
    best_outside = int(np.argmax(np.where(playable & ~is_best, means, -np.inf)))
    opposite = np.where(is_best, best_outside, worst_inside)
    pair_variances = variance + variance[opposite]
    min_gaps = np.maximum(np.abs(means - means[opposite]) - np.sqrt(pair_variances), 0.0)
    return _catch_up(posterior, playable, np.where(playable, 1 / (min_gaps**2 + pair_variances), 0.0), batch)


def _catch_up(posterior: ArmPosterior, playable: Bools, ratios: Array, batch: int) -> Array:
    """Return shares by which people come closest to proportions, a fifth of which are those of random arms."""
    shares = (1 - _RANDOM_ARM_SHARE) * ratios / ratios.sum() + _RANDOM_ARM_SHARE * playable / playable.sum()
    deficits = np.maximum(shares * (posterior.people.sum() + batch) - posterior.people, 0.0) * playable
    return np.asarray(deficits / deficits.sum())
