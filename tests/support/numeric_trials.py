"""Many trials at once with numeric rewards in a single segment, drawn from the exact laws of mechanisms."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv, ndtri

from privateer_core.mechanisms.named_symbol import NamedSymbol
from privateer_core.primitives.contributions import BERNSTEIN, ValueParts
from privateer_core.primitives.questions import KeyedHits
from privateer_core.privacy.trust import count_honest
from privateer_core.spec.privacy import Privacy
from privateer_server.algorithms.trial.allocation import compute_matching_shares
from privateer_server.algorithms.trial.evidence.epochs import Epoch, TrialDesign
from privateer_server.algorithms.trial.evidence.trial_evidence import TrialEvidence
from privateer_server.algorithms.trial.treatment_effects import compute_effects

Array = NDArray[np.float64]
LOOKS: Final = 8
_ATOMS: Final = (np.arange(400) + 0.5) / 400


@dataclass(frozen=True)
class Rewards:
    """Rewards of finitely many values in [0, 1], with the probability of each."""

    values: Array
    likely: Array

    @classmethod
    def of(cls, quantile: Callable[[Array], Array], share: float = 1.0) -> "Rewards":
        """Return rewards by their quantiles, of a share of the people; the others have 0."""
        values = np.clip(quantile(_ATOMS), 0.0, 1.0)
        return cls(np.append(values, 0.0), np.append(np.full(len(values), share / len(values)), 1 - share))

    def with_effect(self, effect: float) -> "Rewards":
        """Return rewards higher by an effect: multiplied by a factor, so that rewards of 0 stay 0."""
        return Rewards(np.clip(self.values * (1 + effect / self.mean), 0.0, 1.0), self.likely)

    @property
    def mean(self) -> float:
        return float(self.values @ self.likely)

    @property
    def variance(self) -> float:
        return float(np.square(self.values) @ self.likely) - self.mean**2

    def levels(self, count: int) -> Array:
        """Probabilities of levels, each value rounded to a neighbour without bias."""
        places = (count - 1) * self.values
        low = np.minimum(np.floor(places), count - 2).astype(int)
        above = places - low
        floor_probabilities = np.bincount(low, self.likely * (1 - above), count)
        return np.asarray(floor_probabilities + np.bincount(low + 1, self.likely * above, count))


SCORES: Final = Rewards.of(lambda u: 0.5 + 0.1 * ndtri(u))
SKEWED: Final = Rewards.of(lambda u: betaincinv(6.0, 14.0, u))


def revenue(buyers: float = 0.05, cap: float = 300.0) -> Rewards:
    """Return the distribution of revenue: 0 for most, and log-normal with median 30 for buyers, up to a cap."""
    return Rewards.of(lambda u: np.exp(np.log(30.0) + ndtri(u)) / cap, buyers)


@dataclass(frozen=True)
class NumericTrials:
    """Trials of two arms alike.

    Attributes
    ----------
    model, epsilon
        The promise; shuffled reports name the arm.
    arms
        What people get from each arm.
    people, count
        People of a trial, and how many trials.
    expected, limit
        The mean that the spec declares, and the most that a shuffled report costs.
    shares, looks
        Planned shares of the arms, and how often somebody looks.
    """

    model: str
    epsilon: float
    arms: tuple[Rewards, Rewards]
    people: int = 20_000
    count: int = 400
    expected: float = 0.5
    limit: float = 4.0
    shares: tuple[float, float] = (0.5, 0.5)
    looks: int = LOOKS

    @property
    def effect(self) -> float:
        return self.arms[1].mean - self.arms[0].mean

    @property
    def welch(self) -> float:
        """Half-width of a plain interval of 95 % of all people's rewards."""
        each = (arm.variance / (self.people * share) for arm, share in zip(self.arms, self.shares, strict=True))
        return float(1.96 * np.sqrt(sum(each)))

    @property
    def sizes(self) -> list[int]:
        ends = [round(self.people / 1.5**look) for look in reversed(range(self.looks))]
        return np.diff([0, *ends]).tolist()

    def begin(self) -> TrialEvidence:
        return TrialEvidence.begin(
            TrialDesign(0.05, self.people, np.array(self.shares), np.ones(self.count), numeric=True)
        )

    def draw_epoch(self, rng: np.random.Generator, people: int, shares: Array) -> Epoch:
        """Draw what an epoch releases under shares (count, 2)."""
        return (
            self._draw_cells(rng, people, shares)
            if self.model in ("none", "central")
            else self._draw_named_cells(rng, people, shares)
        )

    def _draw_cells(self, rng: np.random.Generator, people: int, shares: Array) -> Epoch:
        hits = rng.multinomial(people, shares)
        cells = np.empty((3, self.count, 2))
        for arm, rewards in enumerate(self.arms):
            draws = rng.multinomial(hits[:, arm], rewards.likely / rewards.likely.sum())
            r = rewards.values
            cells[..., arm] = np.stack([(1 - r) ** 2, 2 * r * (1 - r), r**2]) @ draws.T
        noise = 0.0
        if self.model == "central":
            decay = np.exp(-self.epsilon / 2)
            noise = 2 * decay / (1 - decay) ** 2
            plus, minus = rng.geometric(1 - decay, (2, *cells.shape))
            cells += plus - minus
        return _epoch(people, cells, (1.0, 0.0, noise), shares, BERNSTEIN)

    def _draw_named_cells(self, rng: np.random.Generator, people: int, shares: Array) -> Epoch:
        mechanism = self.mechanism(people)
        response, levels = mechanism.response, mechanism.levels
        parts, fresh = ValueParts.levels(levels), self.model == "shuffle"
        level_probabilities = np.stack([arm.levels(levels) for arm in self.arms])
        of_others = response.other if fresh else response.other * shares[..., None]
        likely = response.gain * shares[..., None] * level_probabilities + of_others
        flat = likely.reshape(self.count, -1)
        draws = rng.multinomial(people, flat / flat.sum(axis=1, keepdims=True))
        cells = np.moveaxis(draws.reshape(self.count, 2, levels), -1, 0).astype(float)
        if not fresh:
            return _epoch(people, cells, (response.gain, response.other * levels / 2, 0.0), shares, parts)
        noise = people * response.other * (1 - response.other)
        return _epoch(people, cells - people * response.other, (response.gain, 0.0, noise), shares, parts)

    def mechanism(self, people: int) -> NamedSymbol:
        """Return what an epoch's reports are."""
        if self.model == "local":
            return NamedSymbol.calibrated(KeyedHits.from_keys(1, 0, self.expected), self.epsilon)
        privacy = Privacy(model="shuffle", epsilon=self.epsilon, delta=1e-6, local_epsilon_max=self.limit)
        question = KeyedHits.from_keys(2, 0, self.expected)
        return NamedSymbol.amplified(question, self.epsilon, 1e-6, count_honest(privacy, people), self.limit)

    def play(self, adapt: bool, floor: float = 0.05, seed: int = 1) -> "TrialFigures":
        """Look at all trials, and let their shares adapt."""
        rng, shares, evidence = np.random.default_rng(seed), np.tile(self.shares, (self.count, 1)), self.begin()
        rejected, always = np.zeros(self.count, bool), np.ones(self.count, bool)
        for people in self.sizes:
            evidence = evidence.add(self.draw_epoch(rng, people, shares))
            effects = compute_effects(evidence)
            low, high = effects.low[:, 0], effects.high[:, 0]
            rejected |= (low > 0) | (high < 0)
            always &= ~((low > self.effect) | (high < self.effect))
            shares = compute_matching_shares(evidence, floor) if adapt else shares
        resolved = np.isfinite(effects.estimate[:, 0])
        inside = (low <= self.effect) & (self.effect <= high)
        width, end, error = np.inf, np.nan, np.nan
        if resolved.any():
            width = float(np.median((high - low)[resolved])) / 2 / self.welch
            end = float(np.mean(inside[resolved]))
            error = float((effects.estimate[resolved, 0] - self.effect).mean()) / self.welch
        return TrialFigures(width, float(rejected.mean()), end, float(always.mean()), float(resolved.mean()), error)


@dataclass(frozen=True)
class TrialFigures:
    """Half-width over a plain interval's; shares of trials: H0 rejected, covered at the end and always, resolved."""

    width: float
    rejection_rate: float
    end: float
    always: float
    resolved: float
    error: float


def _epoch(people: int, cells: Array, law: tuple[float, float, float], shares: Array, parts: ValueParts) -> Epoch:
    values, hits, squares = np.tensordot(parts.moments, cells, 1)
    two = parts.count == 2
    return Epoch(people, values, hits, *law, shares, None if two else squares, parts)
