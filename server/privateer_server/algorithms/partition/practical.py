"""The partition bandit, tight: one signed symbol a person, and bins that learn from their neighbours."""

import math
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from privateer_core.algorithms.partition import PartitionPolicy, PartitionSpec, corners
from privateer_core.answer.parts import AnswerPart, BinMeans
from privateer_core.contributions import KeyedSums
from privateer_server.algorithms.partition.description import CONFIDENCE, DEVIATIONS, bin_means
from privateer_server.algorithms.partition.growing import Growing
from privateer_server.algorithms.partition.parts import wholes_of
from privateer_server.algorithms.partition.screening import Screening, decided, new_screening, rows_of, selected
from privateer_server.algorithms.partition.shares import best_probabilities, thompson_draw
from privateer_server.algorithms.partition.smoothness import SPREADS, usual_lengths
from privateer_server.algorithms.partition.state import PartitionState
from privateer_server.algorithms.partition.told import told
from privateer_server.algorithms.partition.turns import heard, sharing_policy, wider

Array = NDArray[np.float64]

_EXPLORATION: Final = 0.5
"""Thompson sampling draws with this share of the posterior's standard deviation, less when few people are left."""
_WIDE_EXPLORATION: Final = 0.9
"""In wide bins: what is found there serves all their parts, and it shows when smoothness was misjudged."""
_IN_TURNS: Final = 0.35
"""Where arms take turns: each is known sooner."""
_LEAST_EXPLORATION: Final = 0.05
_FADING: Final = 0.6
_FADING_IN_KEY: Final = 0.4
"""Share of the usual exploration where what is found fades: it serves fewer, and doubt grows back by itself."""
_NEWS: Final = 1.03
"""Posteriors are computed again when this many times as many people have reported."""
_FITTED: Final = 1.25
"""Smoothness is fitted again when this many times as many people have reported."""
_FITTED_BINS: Final = 128
_SCREENING: Final = 2.0
_SCREENING_IN_KEY: Final = 4.0
"""Times the usual exploration while features are screened: what a feature does to an arm shows where the arm is played.
Where the arm is in the key the square of its share counts."""


class PartitionLearner(Growing):
    """Algorithm 2 of paper 1 with public arms and one signed symbol (docs/learning.md explains the departures)."""

    state_type = PartitionState

    def start(self, _seed: int) -> PartitionState:
        """One bin, or one for each level; all arms."""
        arms, cohorts = self.spec.arm_count, len(self._cohorts)
        none = np.zeros(0, np.int64)
        spread = int(np.argmin(np.abs(SPREADS - 0.5)))
        state = PartitionState(
            rounds=0,
            seen=0,
            own=0,
            axes=none,
            depths=np.zeros(1, np.int64),
            paths=np.zeros(1, np.int64),
            active=self.playable[None, :],
            precision=np.zeros((1, arms)),
            moment=np.zeros((1, arms)),
            past_depths=none,
            past_paths=none,
            past_precision=np.zeros((0, arms)),
            past_moment=np.zeros((0, arms)),
            mass=np.ones((cohorts, 1)),
            mass_precision=np.full((cohorts, 1), math.inf),
            lengths=usual_lengths(self._space.parts),
            spread=spread,
            mean=np.zeros((1, arms)),
            variance=np.ones((1, arms)),
            computed=0,
            fitted=0,
            turn=self.spec.cohorts[0],
            heard=0,
            bank=self._new_bank(),
            screening=new_screening(self.spec, self._slabs),
        )
        return self._by_levels(state)

    def rearmed(self, state: PartitionState, added: int) -> PartitionState:
        """Return the state with more arms, of which nothing is known, and without retired ones; evidence stays."""
        by_arm = ("active", "precision", "moment", "past_precision", "past_moment", "mean", "variance")
        screening = state.screening.rearmed(added) if state.screening else None
        state = self._remembering_more(replace(wider(state, added, by_arm), screening=screening), added)
        left = state.active & self.playable
        # Where only retired arms were left, all others are tried again.
        active = np.where(left.any(axis=1, keepdims=True), left, self.playable)
        state = self._sifted(self._computed(replace(state, active=active)))
        return replace(state, computed=state.seen)

    def of_cohorts(self, state: PartitionState, rows: list[int]) -> PartitionState:
        """Return the state with the masses of those cohorts."""
        screening = state.screening.of_cohorts(rows) if state.screening else None
        return replace(state, mass=state.mass[rows], mass_precision=state.mass_precision[rows], screening=screening)

    def begun(self, state: PartitionState, before: PartitionSpec) -> PartitionState:
        """Return the state of a new experiment; what screening found has faded as much as it has."""
        if state.screening:
            ended = state.screening.ended - state.own
            state = replace(state, screening=replace(state.screening, ended=ended))
        begun: PartitionState = super().begun(state, before)
        return begun

    def policy(self, state: PartitionState, version: int, batch: int, seed: int, cohort: str = "") -> PartitionPolicy:
        """Bins with several active arms ask their people; coins are shared out by Thompson sampling.

        Where the arm is in the key people are told apart by parts of bins, which reports are not, and arms may take
        turns: an arm that has a whole round tells more than one that has the same share of several.

        At the end (``batch`` 0) every bin plays its best arm. While features are screened the bins are slabs of one.
        """
        if batch and state.screening and state.screening.open:
            return self._about_one_feature(state, state.screening, version, batch, seed, cohort)
        in_key = self.spec.privacy.arm_in_key
        parts = self._parts(state) if in_key else self._undivided(state)
        rows = parts.rows
        active = state.active[rows] if batch else _best_only(state, rows, parts.mean)
        # What may move is watched: with memory bins with one active arm ask their people too.
        bins = np.flatnonzero(active.sum(axis=1) > (0 if batch and state.bank else 1))
        standard_deviation = self._exploration(state)[rows, None] * np.sqrt(state.variance[rows])
        beliefs = (parts.mean[bins], standard_deviation[bins], active[bins])
        shares = best_probabilities(*beliefs)
        if in_key:
            in_turns = self._takes_turns(state)[rows[bins], None]
            shares = np.where(in_turns, thompson_draw(*beliefs, rows[bins], seed), shares)
        people = (state.mass[self._cohorts.index(cohort), rows] * parts.shares)[bins]
        tree: dict[str, Any] = {"axes": self._axes(parts.axes), "depths": parts.depths, "paths": parts.paths}
        tree |= {"active": active, "bins": bins, "wholes": wholes_of(rows[bins]) if in_key else None}
        return sharing_policy(self.spec, version, batch, seed, cohort, shares, people, tree)

    def _about_one_feature(
        self, state: PartitionState, screening: Screening, version: int, batch: int, seed: int, cohort: str
    ) -> PartitionPolicy:
        """Ask about the slabs of the feature whose turn it is, with all arms in play."""
        one, rows = self._slabs[screening.turn], rows_of(self._slabs, screening.turn)
        [(bins, evidence)] = self._evidence(state)
        means, variances = (found[bins.stop :][rows] for found in evidence.posterior(self._smoothness(state)))
        active = np.tile(self.playable, (len(one), 1))
        times = _SCREENING_IN_KEY if self.spec.privacy.arm_in_key else _SCREENING
        shares = best_probabilities(means, times * self._exploration(state) * np.sqrt(variances), active)
        people = screening.mass[self._cohorts.index(cohort), rows]
        tree = {"axes": one.axes, "depths": one.depths, "paths": one.paths, "active": active}
        tree["bins"] = np.arange(len(one))
        return sharing_policy(self.spec, version, batch, seed, cohort, shares, people, tree)

    def _exploration(self, state: PartitionState) -> Array:
        """What is learned serves those to come: less of it when they are fewer than those before; shape (bins,)."""
        left = max(0, self.spec.experiment.horizon - state.own)
        usual = np.where(self._wide(state), _WIDE_EXPLORATION, _EXPLORATION)
        usual = np.where(self._takes_turns(state), _IN_TURNS, usual)
        before = min(state.own, self._half_life(state) / math.log(2))
        if before < state.own:
            usual = usual * (_FADING_IN_KEY if self.spec.privacy.arm_in_key else _FADING)
        return np.maximum(_LEAST_EXPLORATION, usual * math.sqrt(min(1.0, left / max(1, before))))

    def learn(self, state: PartitionState, policy: PartitionPolicy, release: KeyedSums) -> PartitionState:
        """Add what a round says of people and values; then, if there is news enough, drop arms and halve bins."""
        if state.screening and state.screening.open:
            return self._screened(state, state.screening, policy, release)
        cohort, state = self._cohorts.index(policy.cohort), self._heard(state, policy, release)
        parts = self._asked(state, policy) if policy.wholes is not None else None
        rows = np.unique(parts.rows) if parts else policy.bins
        state = told(state, self.spec, policy, release, cohort, rows, parts)
        if not (_news(state, state.computed, _NEWS) or self._soon(state)):
            return state
        state = self._remembered(state)
        if _news(state, state.fitted, _FITTED) and len(state.depths) <= _FITTED_BINS:
            state = self._fitted(state)
        state = self._halved(self._sifted(self._computed(state)))
        return replace(self._windowed(state), computed=state.seen)

    def _screened(
        self, state: PartitionState, screening: Screening, policy: PartitionPolicy, release: KeyedSums
    ) -> PartitionState:
        """Add what a round says of one feature; when enough people were asked, begin the tree with what matters."""
        rows = rows_of(self._slabs, screening.turn)
        screening = told(screening, self.spec, policy, release, self._cohorts.index(policy.cohort), rows)
        asked = screening.asked + release.reports * (np.arange(len(self._slabs)) == screening.turn)
        screening, state = replace(screening, asked=asked), self._heard(state, policy, release)
        screening = decided(screening, self.spec, self._slabs, state.spread, state.own)
        state = replace(state, screening=screening, computed=state.seen)
        if not screening.open:
            return self._grown(self._computed(self._fitted(state)))
        return self._computed(self._fitted(state) if _news(state, state.fitted, _FITTED) else state)

    @staticmethod
    def _heard(state: PartitionState, policy: PartitionPolicy, release: KeyedSums) -> PartitionState:
        """Count the round's people."""
        own = state.own + (0 if policy.cohort else release.reports)
        state = replace(state, rounds=state.rounds + 1, seen=state.seen + release.reports, own=own)
        return heard(state, policy, release.reports)

    def edges(self, state: PartitionState) -> tuple[Array, Array]:
        """Return the corners of the bins."""
        return corners(state.depths, state.paths, state.axes, self.spec.dimension)

    def bin_means(self, state: PartitionState) -> BinMeans:
        """Return mean rewards by bin, with the intervals of their posteriors."""
        low, high = self.spec.reward.low, self.spec.reward.high
        means = low + (high - low) * (state.mean + 1) / 2
        radii = DEVIATIONS * (high - low) * np.sqrt(state.variance) / 2
        return bin_means(state, self.edges(state), means, radii, self.spec, CONFIDENCE)

    def findings(self, state: PartitionState) -> tuple[AnswerPart, ...]:
        """Return whether rounds contradict each other, how fast evidence is forgotten, and which features matter."""
        return (*self.moving(state), *((selected(state.screening, self._slabs),) if state.screening else ()))


def _news(state: PartitionState, before: int, times: float) -> bool:
    """Whether ``times`` as many people have reported as ``before``.

    Sources do not count once own people report: many reports of little information must not hold up a few of much.
    """
    others = state.seen - state.own if state.own else 0
    return state.seen - others >= times * max(0, before - others)


def _best_only(state: PartitionState, rows: NDArray[np.int64], mean: Array) -> NDArray[np.bool_]:
    # An arm that was added and not yet tried is nobody's best.
    tried = (state.precision > 0).any(axis=0) | (state.past_precision > 0).any(axis=0)
    if state.screening:
        tried |= (state.screening.precision > 0).any(axis=0)
    known = (state.active & tried)[rows]
    candidates = np.where(known.any(axis=1, keepdims=True), known, state.active[rows])
    best = np.where(candidates, mean, -np.inf).argmax(axis=1)
    return np.asarray(np.arange(state.active.shape[1])[None, :] == best[:, None])
