"""What the sums of a round tell of terms."""

from dataclasses import dataclass
from typing import Final, cast

import numpy as np

from privateer_core.algorithms.additive.cells import Questions
from privateer_core.algorithms.additive.policy import AdditivePolicy
from privateer_core.arrays import Array, Ints
from privateer_core.mechanisms.cell_pairs import CellPairs
from privateer_core.mechanisms.feature_sums import FeatureSums
from privateer_core.mechanisms.named_symbol import NamedSymbol
from privateer_core.primitives.bounded_vectors import VectorSums
from privateer_core.primitives.contributions import CellHits
from privateer_core.privacy.terms import Terms
from privateer_server.algorithms.additive.feature_products import FeatureProducts, RoundInformation
from privateer_server.algorithms.additive.participant_shares import ArmShares

_MIN_DIVISOR: Final = 1e-9


@dataclass(frozen=True)
class PartSums:
    """Sums over all participants of a round."""

    sums: Array  # shape (arms, parts): of residuals
    counts: Array  # shape (arms or 1, parts): of people
    # noise, count_noise: shape (parts,): variances of noise in sums and counts, if everybody's report was noise;
    # infinite where nobody was asked
    noise: Array
    count_noise: Array
    # how likely the report of a person elsewhere is noise, and how much likelier that of a person of the part
    rates: tuple[float, float]
    # mean square of what the report of a person elsewhere adds to a sum, and how much larger that of one of the part
    # is, as far as ``noise`` does not say it
    value_rates: tuple[float, float]
    is_same_people: bool  # whether all sums are over the same people
    # shape (parts,): how often everybody who was asked counts, if residuals vary by more than ``noise`` says; else 0
    times: Array

    def variances(self, shares: Array, spreads: Array) -> Array:
        """Return the variance of noise in sums, (arms, parts), by shares and variances of people's residuals."""
        return self.noise * (self.value_rates[0] + self.value_rates[1] * shares) + self.times * spreads

    def count_variances(self, shares: Array, people: int) -> Array:
        """Return the variance of noise in the sum of counts over arms, (parts,), by the parts' shares of people."""
        noise = self.count_noise * (len(self.counts) * self.rates[0] + self.rates[1] * shares)
        return noise + np.maximum(self.times - 1, 0) * people * shares

    def select_parts(self, parts: Ints) -> "PartSums":
        """Return the sums of the selected parts."""
        columns = self.sums[:, parts], self.counts[:, parts], self.noise[parts], self.count_noise[parts]
        return PartSums(*columns, self.rates, self.value_rates, self.is_same_people, self.times[parts])

    @classmethod
    def from_release(cls, policy: AdditivePolicy, release: VectorSums | CellHits) -> "PartSums":
        """Return the sums of a release."""
        if policy.is_single_question:
            return cls._from_pairs(policy, cast(CellHits, release))
        if isinstance(release, CellHits):
            return cls._from_symbols(policy, release)
        return cls._from_features(policy, release)

    @classmethod
    def _from_features(cls, policy: AdditivePolicy, release: VectorSums) -> "PartSums":
        """Return the sums of records, in which everybody answers all questions."""
        mechanism, question_of_part = cast(FeatureSums, policy.terms.mechanism), policy.questions.question_of_part
        totals, arms = release.sums.reshape(-1, len(question_of_part)), len(policy.means)
        rows = []
        for scaled_sums, scales in ((totals[:arms], mechanism.value_scales), (totals[arms:], mechanism.count_scales)):
            part_scales = np.array(scales, np.float64)[question_of_part]
            divisors = np.maximum(part_scales, 1.0)
            noise = np.where(part_scales > 0, release.noise / divisors**2, np.inf)
            rows.append((scaled_sums / divisors, noise))
        (sums, noise), (counts, count_noise) = rows
        times = np.zeros(len(noise))
        return cls(sums, counts, noise, count_noise, (1.0, 0.0), (1.0, 0.0), is_same_people=True, times=times)

    @classmethod
    def _from_pairs(cls, policy: AdditivePolicy, release: CellHits) -> "PartSums":
        """Return the sums of hits by part and arm, in which each participant answers one question."""
        shape, shares = (-1, len(policy.means)), policy.shares[policy.questions.question_of_part]
        positive, hits = release.positive.reshape(shape).T, release.hits.reshape(shape).T
        with np.errstate(divide="ignore"):
            inverse_shares = np.where(shares > 0, 1 / shares, np.inf)
        scale = np.where(shares > 0, 1 / np.maximum(shares, _MIN_DIVISOR), 0.0)
        sums, counts = scale * (positive - policy.below * (hits - positive)), scale * hits
        noise = (1 + policy.below**2) * release.noise * inverse_shares**2, 2 * release.noise * inverse_shares**2
        return cls(sums, counts, *noise, (1.0, 0.0), (1.0, 0.0), is_same_people=False, times=scale)

    @classmethod
    def _from_symbols(cls, policy: AdditivePolicy, release: CellHits) -> "PartSums":
        """Return the sums of symbols, each of which names a key of one question."""
        questions, arms = policy.questions, len(policy.means)
        part_questions = questions.question_of_part
        part_offsets = np.arange(int(questions.starts[-1])) - questions.starts[part_questions]
        indices = part_offsets * arms + np.arange(arms)[:, None], part_questions
        trials = release.counts[0][part_questions].astype(np.float64)
        times = np.where(trials > 0, release.reports / np.maximum(trials, 1), 0.0)
        hit_own, hit_other = hit_rates(policy.terms)
        own_excess = hit_own - hit_other
        noise_scale = np.where(trials > 0, trials * times**2, np.inf)
        # A hit with value 1 counts for 1, and one with value 0 for -below: for the residuals that they say.
        below, positive, hits = policy.below, release.positive[indices], release.hits[indices]
        sums = positive - below * (hits - positive) - trials * hit_other * (1 - below) / 2
        sums *= times / release.gain
        noise = noise_scale / release.gain**2
        if own_excess <= 0:
            # One bucket has all keys: a hit says nothing of who is where.
            zeros, infinite = np.zeros_like(sums), np.full_like(noise_scale, np.inf)
            rates = (hit_other, 0.0), (hit_other, 0.0)
            return cls(sums, zeros, noise, infinite, *rates, is_same_people=False, times=np.zeros(len(noise)))
        counts = times * (hits - trials * hit_other) / own_excess
        # A share of below / (1 + below) of residuals with mean 0 have value 1, so that their mean square is below.
        value_rates = hit_other * (1 + below**2) / 2, own_excess * below
        rates = (hit_other, own_excess), value_rates
        return cls(
            sums, counts, noise, noise_scale / own_excess**2, *rates, is_same_people=False, times=np.zeros(len(noise))
        )


def hit_rates(terms: Terms) -> tuple[float, float]:
    """Return the probabilities that a report hits the participant's own key, and another key."""
    mechanism = terms.mechanism
    assert isinstance(mechanism, NamedSymbol)
    other_rate = 2 * mechanism.response.other
    own_rate = mechanism.response.gain + other_rate
    return own_rate, mechanism.collision_probability * own_rate + (1 - mechanism.collision_probability) * other_rate


def noise_variance(terms: Terms, below: float) -> float:
    """Return the variance of noise in a sum over all participants of a round, if its question was the only one."""
    mechanism = terms.mechanism
    if isinstance(mechanism, NamedSymbol):
        return terms.batch_size * hit_rates(terms)[1] * (1 + below**2) / 2 / mechanism.response.gain**2
    if isinstance(mechanism, CellPairs):
        return (1 + below**2) * mechanism.noise
    return cast(FeatureSums, mechanism).value_noise


_EXACT_COUNT_VARIANCE: Final = 1e-3
"""Variance of a sum that has no noise, in people: a little, so that sums that follow from others do no harm."""


@dataclass(frozen=True)
class ObservedRound:
    """A round's sums of residuals."""

    people: int  # people of the round
    sums: Array  # shape (arms, parts): sums over all people, as estimated
    variances: Array  # shape (arms, parts): of noise in them; infinite where nobody was asked
    means: Array  # shape (arms, terms): the terms that residuals were measured from
    arms: ArmShares  # who got which arm
    has_joint_sums: bool  # whether all sums are over the same people, so that they vary together
    counts: Array  # shape (arms, terms): people by arm and cell, where they are known exactly; else empty

    def statistics(self, questions: Questions, masses: Array) -> tuple[RoundInformation, Array]:
        """Return information and scores (arms, terms) of the terms."""
        products = FeatureProducts.from_weights(questions, self._weighted(masses))
        precisions = 1 / np.maximum(self.variances, _EXACT_COUNT_VARIANCE)
        spread = self.arms.spread if self.has_joint_sums else np.zeros(len(self.sums))
        information, scores = products.statistics(questions, precisions, self.sums, spread)
        return information, scores + information.multiply(questions, self.means)

    def _weighted(self, masses: Array) -> Array:
        """Return how many people each arm has by cell, (arms, terms), by what their residuals are multiplied by.

        Features are taken as independent given the arm: what that leaves out later rounds measure again.
        """
        if self.counts.size:
            return self.counts * self.arms.weighted / np.maximum(self.arms.shares, 1e-9)
        return self.people * masses * self.arms.weighted
