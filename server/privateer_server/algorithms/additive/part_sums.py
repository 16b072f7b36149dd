"""A round's release as sums over all its people, by arm and part of a question, with how far noise may move them."""

from dataclasses import dataclass
from typing import Final, cast

import numpy as np
from numpy.typing import NDArray

from privateer_core.algorithms.additive.policy import AdditivePolicy
from privateer_core.mechanisms.cell_pairs import CellPairs
from privateer_core.mechanisms.named_symbol import NamedSymbol
from privateer_core.primitives.bounded_vectors import VectorSums
from privateer_core.primitives.contributions import CellHits
from privateer_core.privacy.terms import Terms

Array = NDArray[np.float64]
_NONE: Final = 1e-9


@dataclass(frozen=True)
class PartSums:
    """Sums over all people of a round."""

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
    together: bool  # whether all sums are over the same people
    # shape (parts,): how often everybody who was asked counts, if residuals vary by more than ``noise`` says; else 0
    times: Array

    def variances(self, shares: Array, spreads: Array) -> Array:
        """Return the variance of noise in sums, (arms, parts).

        shares (arms, parts): of people.
        spreads (arms, parts): variances of the sums of all people's residuals.
        """
        return self.noise * (self.value_rates[0] + self.value_rates[1] * shares) + self.times * spreads

    def doubts(self, shares: Array, people: int) -> Array:
        """Return the variance of noise in the sum of counts over arms, (parts,), where these are the shares of people.

        shares (parts,): of all arms together.
        """
        noise = self.count_noise * (len(self.counts) * self.rates[0] + self.rates[1] * shares)
        return noise + np.maximum(self.times - 1, 0) * people * shares

    def at(self, parts: NDArray[np.int64]) -> "PartSums":
        """Return the sums of some parts."""
        told = self.sums[:, parts], self.counts[:, parts], self.noise[parts], self.count_noise[parts]
        return PartSums(*told, self.rates, self.value_rates, self.together, self.times[parts])

    @classmethod
    def of(cls, policy: AdditivePolicy, release: VectorSums | CellHits) -> "PartSums":
        """Return what a release says."""
        if policy.asks_one:
            return cls._of_pairs(policy, cast(CellHits, release))
        if isinstance(release, CellHits):
            return cls._of_symbols(policy, release)
        return cls._of_vectors(policy, release)

    @classmethod
    def _of_vectors(cls, policy: AdditivePolicy, release: VectorSums) -> "PartSums":
        questions, arms = policy.questions, len(policy.means)
        told = release.sums.reshape(-1, int(questions.starts[-1]))
        lengths = np.sqrt(policy.shares[questions.of_part])
        with np.errstate(divide="ignore"):
            each = release.noise / lengths**2 if release.noise else np.where(lengths > 0, 0.0, np.inf)
        lengths = np.where(lengths > 0, lengths, np.inf)
        sums = told[:arms] / (np.sqrt(1 - policy.counted) * lengths)
        counts = told[arms:] / (np.sqrt(policy.counted) * lengths)
        noise = each / (1 - policy.counted), each / policy.counted
        return cls(sums, counts, *noise, (1.0, 0.0), (1.0, 0.0), together=True, times=np.zeros(len(lengths)))

    @classmethod
    def _of_pairs(cls, policy: AdditivePolicy, release: CellHits) -> "PartSums":
        shape, shares = (-1, len(policy.means)), policy.shares[policy.questions.of_part]
        positive, hits = release.positive.reshape(shape).T, release.hits.reshape(shape).T
        with np.errstate(divide="ignore"):
            times = np.where(shares > 0, 1 / shares, np.inf)
        told = np.where(shares > 0, 1 / np.maximum(shares, _NONE), 0.0)
        sums, counts = told * (positive - policy.below * (hits - positive)), told * hits
        noise = (1 + policy.below**2) * release.noise * times**2, 2 * release.noise * times**2
        return cls(sums, counts, *noise, (1.0, 0.0), (1.0, 0.0), together=False, times=told)

    @classmethod
    def _of_symbols(cls, policy: AdditivePolicy, release: CellHits) -> "PartSums":
        questions, arms = policy.questions, len(policy.means)
        asked, own = questions.of_part, np.arange(int(questions.starts[-1])) - questions.starts[questions.of_part]
        places = own * arms + np.arange(arms)[:, None], asked
        trials = release.counts[0][asked].astype(np.float64)
        times = np.where(trials > 0, release.reports / np.maximum(trials, 1), 0.0)
        hit_own, hit_other = hit_rates(policy.terms)
        more = hit_own - hit_other
        each = np.where(trials > 0, trials * times**2, np.inf)
        # A hit with value 1 counts for 1, and one with value 0 for -below: for the residuals that they say.
        below, positive, hits = policy.below, release.positive[places], release.hits[places]
        sums = positive - below * (hits - positive) - trials * hit_other * (1 - below) / 2
        sums *= times / release.gain
        noise = each / release.gain**2
        if more <= 0:
            # One bucket has all keys: a hit says nothing of who is where.
            nothing, unknown = np.zeros_like(sums), np.full_like(each, np.inf)
            rates = (hit_other, 0.0), (hit_other, 0.0)
            return cls(sums, nothing, noise, unknown, *rates, together=False, times=np.zeros(len(noise)))
        counts = times * (hits - trials * hit_other) / more
        # A share of below / (1 + below) of residuals with mean 0 have value 1, so that their mean square is below.
        value_rates = hit_other * (1 + below**2) / 2, more * below
        rates = (hit_other, more), value_rates
        return cls(sums, counts, noise, each / more**2, *rates, together=False, times=np.zeros(len(noise)))


def hit_rates(terms: Terms) -> tuple[float, float]:
    """Return how likely a report is a hit of the person's own key, and of another key."""
    mechanism = terms.mechanism
    assert isinstance(mechanism, NamedSymbol)
    other = 2 * mechanism.response.other
    own = mechanism.response.gain + other
    return own, mechanism.together * own + (1 - mechanism.together) * other


def noise_of(terms: Terms, counted: float, below: float) -> float:
    """Return the variance of noise in a sum over all people of a round, if its question was the only one."""
    mechanism = terms.mechanism
    if isinstance(mechanism, NamedSymbol):
        return terms.batch * hit_rates(terms)[1] * (1 + below**2) / 2 / mechanism.response.gain**2
    if isinstance(mechanism, CellPairs):
        return (1 + below**2) * mechanism.noise
    return (mechanism.standard_deviation * mechanism.ball.step) ** 2 / (1 - counted)  # type: ignore[union-attr]
