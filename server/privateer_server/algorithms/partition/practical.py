"""The partition bandit, tight: one signed symbol a person, and bins that learn from their neighbours."""

import math
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from privateer.algorithms.partition import DEPTH_MAX, PartitionPolicy, PartitionSpec, corners
from privateer.coins import Layout
from privateer.contributions import KeyedSums
from privateer_server.algorithms.partition.cells import by_cell, cells, key_masses, key_shares
from privateer_server.algorithms.partition.contradiction import Earlier
from privateer_server.algorithms.partition.description import describe
from privateer_server.algorithms.partition.field import Evidence
from privateer_server.algorithms.partition.halving import ancestry, halved
from privateer_server.algorithms.partition.masses import weighed
from privateer_server.algorithms.partition.memory import Bank
from privateer_server.algorithms.partition.remembering import Remembering
from privateer_server.algorithms.partition.screening import Screening, decided, new_screening, rows_of, said, told_of
from privateer_server.algorithms.partition.shares import best_probabilities, thresholds
from privateer_server.algorithms.partition.slabs import slabs_of
from privateer_server.algorithms.partition.smoothness import SPREADS, Smoothness, usual_lengths
from privateer_server.algorithms.partition.space import Space
from privateer_server.algorithms.partition.turns import heard, make_policy, wider

Array = NDArray[np.float64]

_EXPLORATION: Final = 0.5
_WIDE_EXPLORATION: Final = 0.9
"""Thompson sampling draws with this share of the posterior's standard deviation, less when few people are left; with
more in wide bins: what is found there serves all their parts, and it shows when smoothness was misjudged."""
_LEAST_EXPLORATION: Final = 0.05
_FADING: Final = 0.6
_FADING_IN_KEY: Final = 0.4
"""Share of the usual exploration where what is found fades: it serves fewer, and doubt grows back by itself."""
_DROP: Final = 2.2
_DROP_IN_KEY: Final = 1.8
"""Standard deviations of a difference at which an arm is dropped. Where the arm is in the key the square of its share
counts, so that one that is rarely played tells next to nothing and is dropped earlier."""
_USUAL_SPREAD: Final = 2
"""Place of the spread that bins have at most when arms are dropped, .75; lengths are the usual ones."""
_NARROW: Final = 0.25
"""Bins of this width or less are not wide: they are as even as was fitted."""
_SPLIT: Final = 0.5
_HALF_KNOWN: Final = 0.6
"""Standard deviation of a half's share of people from one half, relative to it, before people are counted."""
_NOBODY: Final = 1e-18
_POOL: Final = 100.0
"""Reports with which the average over keys counts in a key's own share of scored reports."""
_NEWS: Final = 1.03
"""Posteriors are computed again when this many times as many people have reported."""
_FITTED: Final = 1.25
"""Smoothness is fitted again when this many times as many people have reported."""
_FITTED_BINS: Final = 128
_SCREENING: Final = 2.0
_SCREENING_IN_KEY: Final = 4.0
"""Times the usual exploration while features are screened: what a feature does to an arm shows where the arm is played.
Where the arm is in the key the square of its share counts."""
_LARGE: Final = 0.0625
"""After a screening bins with a larger share of the people count as wide, whatever their width: they may be few."""
_DROP_LARGE: Final = 3.0
"""Standard deviations at which an arm is dropped there."""
_FIRST_BINS: Final = 32
"""Bins that the tree begins with after features were screened, at most."""
_TOGETHER: Final = 256
"""Bins that learn from each other, at most: neighbourhoods above this size are cut in two."""


@dataclass(frozen=True)
class PartitionState:
    """What the server knows of the bins. Values are 2 mean reward - 1, averaged over a bin.

    Attributes
    ----------
    rounds, seen, own
        Closed rounds, people who reported, and those among them who belong to no source.
    axes
        Shape (levels,): column that each level halves, as far as bins have been halved.
    depths, paths
        Shape (bins,): the bins, as in `PartitionPolicy`, in order.
    active
        Shape (bins, arms): arms that are tried.
    precision, moment
        Shape (bins, arms): what reports on the bin say of its values: precision, and precision times mean.
    past_depths, past_paths, past_precision, past_moment
        The same of bins that were halved since, shapes (past,) and (past, arms).
    mass, mass_precision
        Shape (cohorts, bins): share of a cohort's people in the bin, and the precision of that; own people first.
    lengths, spread
        The smoothness in use (`Smoothness`), without its space.
    mean, variance
        Shape (bins, arms): posterior of the values when ``computed`` people had reported.
    computed, fitted
        People who had reported when posteriors were computed and when smoothness was fitted, last.
    turn, heard
        The cohort of the last round, and its people who have reported.
    bank
        Evidence that fades, by half-life; ``precision`` and the like are then those of the one in use. None without
        memory.
    earlier
        What was known when the window opened whose rounds are compared with those before.
    screening
        What rounds about one feature at a time said; None where no feature was asked about alone.
    """

    rounds: int
    seen: int
    own: int
    axes: NDArray[np.int64]
    depths: NDArray[np.int64]
    paths: NDArray[np.int64]
    active: NDArray[np.bool_]
    precision: NDArray[np.float64]
    moment: NDArray[np.float64]
    past_depths: NDArray[np.int64]
    past_paths: NDArray[np.int64]
    past_precision: NDArray[np.float64]
    past_moment: NDArray[np.float64]
    mass: NDArray[np.float64]
    mass_precision: NDArray[np.float64]
    lengths: NDArray[np.int64]
    spread: int
    mean: NDArray[np.float64]
    variance: NDArray[np.float64]
    computed: int
    fitted: int
    turn: str
    heard: int
    bank: Bank | None = None
    earlier: Earlier | None = None
    screening: Screening | None = None


class PartitionLearner(Remembering):
    """Algorithm 2 of paper 1 with public arms and one signed symbol (docs/learning.md explains the departures)."""

    state_type = PartitionState

    def __init__(self, spec: PartitionSpec) -> None:
        super().__init__(spec)
        self._cohorts = ["", *(source.name for source in spec.sources)]
        self._space, self._slabs = Space(spec.blocks), slabs_of(spec)

    def start(self, _seed: int) -> PartitionState:
        """One bin, all arms."""
        arms, cohorts = self.spec.arm_count, len(self._cohorts)
        none = np.zeros(0, np.int64)
        spread = int(np.argmin(np.abs(SPREADS - 0.5)))
        return PartitionState(
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

    def rearmed(self, state: PartitionState, added: int) -> PartitionState:
        """Return the state with more arms, of which nothing is known, and without retired ones; evidence stays."""
        by_arm = ("active", "precision", "moment", "past_precision", "past_moment", "mean", "variance")
        wide: dict[str, Any] = {name: wider(getattr(state, name), added, name == "active") for name in by_arm}
        screening = state.screening.rearmed(added) if state.screening else None
        state = self._remembering_more(replace(state, **wide, screening=screening), added)
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

        At the end (``batch`` 0) every bin plays its best arm. While features are screened the bins are slabs of one.
        """
        if batch and state.screening and state.screening.open:
            return self._about_one_feature(state, state.screening, version, batch, seed, cohort)
        active = state.active if batch else _best_only(state)
        # What may move is watched: with memory bins with one active arm ask their people too.
        bins = np.flatnonzero(active.sum(axis=1) > (0 if batch and state.bank else 1))
        standard_deviation = self._exploration(state)[bins, None] * np.sqrt(state.variance[bins])
        shares = best_probabilities(state.mean[bins], standard_deviation, active[bins])
        masses = state.mass[self._cohorts.index(cohort), bins, None] * key_shares(self.spec, shares, cohort)
        return make_policy(
            self.spec,
            version,
            batch,
            cohort,
            Layout(seed, thresholds(shares, active[bins])),
            (min(1.0, float(masses.sum())), float(np.max(masses, initial=0.0))),
            axes=self._axes(state),
            depths=state.depths,
            paths=state.paths,
            active=active,
            bins=bins,
        )

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
        masses = screening.mass[self._cohorts.index(cohort), rows, None] * key_shares(self.spec, shares, cohort)
        return make_policy(
            self.spec,
            version,
            batch,
            cohort,
            Layout(seed, thresholds(shares, active)),
            (min(1.0, float(masses.sum())), float(np.max(masses))),
            axes=one.axes,
            depths=one.depths,
            paths=one.paths,
            active=active,
            bins=np.arange(len(one)),
        )

    def _exploration(self, state: PartitionState) -> Array:
        """What is learned serves those to come: less of it when they are fewer than those before; shape (bins,)."""
        left = max(0, self.spec.experiment.horizon - state.own)
        usual = np.where(self._wide(state), _WIDE_EXPLORATION, _EXPLORATION)
        before = min(state.own, self._half_life(state) / math.log(2))
        if before < state.own:
            usual = usual * (_FADING_IN_KEY if self.spec.privacy.arm_in_key else _FADING)
        return np.maximum(_LEAST_EXPLORATION, usual * math.sqrt(min(1.0, left / max(1, before))))

    def _wide(self, state: PartitionState) -> NDArray[np.bool_]:
        wide = self._kept(state)[0].widest(*self._corners(state)) > _NARROW
        return np.asarray(wide | self._large(state))

    def _large(self, state: PartitionState) -> NDArray[np.bool_]:
        """Tell which bins have many people, where features were screened."""
        return np.asarray((state.mass[0] > _LARGE) & (state.screening is not None))

    def _kept(self, state: PartitionState) -> tuple[Space, NDArray[np.int64]]:
        """Return the space of the features that matter, as far as is known, and its columns."""
        return self._space.only(self._blocks(state))

    def _blocks(self, state: PartitionState) -> NDArray[np.int64]:
        kept = [
            one.blocks for place, one in enumerate(self._slabs) if not state.screening or state.screening.kept[place]
        ]
        return np.concatenate(kept)

    def _corners(self, state: PartitionState) -> tuple[Array, Array]:
        """Return the corners of the bins, along the columns that are kept."""
        columns = self._kept(state)[1]
        lower, upper = corners(state.depths, state.paths, state.axes, self.spec.dimension)
        return lower[:, columns], upper[:, columns]

    def _smoothness(self, state: PartitionState) -> Smoothness:
        """How values vary over the space of the features that are kept."""
        return Smoothness(state.lengths[self._blocks(state)], state.spread, self._kept(state)[0])

    def _axes(self, state: PartitionState) -> NDArray[np.int64]:
        rest = np.arange(len(state.axes), DEPTH_MAX) % self.spec.dimension
        return np.concatenate([state.axes, rest])

    def learn(self, state: PartitionState, policy: PartitionPolicy, release: KeyedSums) -> PartitionState:
        """Add what a round says of people and values; then, if there is news enough, drop arms and halve bins."""
        if state.screening and state.screening.open:
            return self._screened(state, state.screening, policy, release)
        state = heard(self._observed(state, policy, release), policy, release.reports)
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
        mass, mass_precision = screening.mass.copy(), screening.mass_precision.copy()
        precision, moment = screening.precision.copy(), screening.moment.copy()
        cohort = self._cohorts.index(policy.cohort), rows
        mass[cohort], mass_precision[cohort] = self._counted(mass[cohort], mass_precision[cohort], policy, release)
        told = self._told(mass[cohort], policy, release)
        precision[rows] += told[0]
        moment[rows] += told[1]
        asked = screening.asked + release.reports * (np.arange(len(self._slabs)) == screening.turn)
        screening = replace(
            screening, precision=precision, moment=moment, mass=mass, mass_precision=mass_precision, asked=asked
        )
        state = heard(self._later(state, policy, release), policy, release.reports)
        screening = decided(screening, self.spec, self._slabs, state.spread, state.own)
        state = replace(state, screening=screening, computed=state.seen)
        if not screening.open:
            return self._grown(self._computed(self._fitted(state)))
        return self._computed(self._fitted(state) if _news(state, state.fitted, _FITTED) else state)

    def _grown(self, state: PartitionState) -> PartitionState:
        """Halve bins until none is known well enough to be halved."""
        while len(state.depths) < len((after := self._halved(self._sifted(state))).depths) <= _FIRST_BINS:
            state = after
        return state

    def _counted(
        self, mass: Array, precision: Array, policy: PartitionPolicy, release: KeyedSums
    ) -> tuple[Array, Array]:
        """Masses of a round's bins and their precisions, where its scores tell them."""
        return weighed(mass, precision, *key_masses(self.spec, policy), release)

    def _told(self, mass: Array, policy: PartitionPolicy, release: KeyedSums) -> tuple[Array, Array]:
        """What a round says of the values of its bins: precision, and precision times mean, by inverse variance.

        A source's sums are in proportion to the share of its people who played the arm, eq. (26) with weights by
        inverse variance.
        """
        found = cells(self.spec, policy, release)
        gain = found.gain * mass[:, None]
        # A curator's noise is added once to a sum: a report bears its share of it.
        variance = by_cell(policy, _variance(release), 1.0) + release.noise / np.maximum(1, found.reports)
        weight = gain / variance
        return gain * weight * found.reports, weight * found.sums

    @staticmethod
    def _later(state: PartitionState, policy: PartitionPolicy, release: KeyedSums) -> PartitionState:
        """Count the round's people."""
        return replace(
            state,
            rounds=state.rounds + 1,
            seen=state.seen + release.reports,
            own=state.own + (0 if policy.cohort else release.reports),
        )

    def _observed(self, state: PartitionState, policy: PartitionPolicy, release: KeyedSums) -> PartitionState:
        """Add the round to what is known of people and values."""
        bins, cohort = policy.bins, self._cohorts.index(policy.cohort)
        mass, mass_precision = state.mass.copy(), state.mass_precision.copy()
        precision, moment = state.precision.copy(), state.moment.copy()
        counted = self._counted(mass[cohort, bins], mass_precision[cohort, bins], policy, release)
        mass[cohort, bins], mass_precision[cohort, bins] = counted
        told = self._told(mass[cohort, bins], policy, release)
        precision[bins] += told[0]
        moment[bins] += told[1]
        return replace(
            self._later(state, policy, release),
            mass=mass,
            mass_precision=mass_precision,
            precision=precision,
            moment=moment,
        )

    def _evidence(self, state: PartitionState) -> list[tuple[slice, Evidence]]:
        """What is known of values, by groups of bins that learn from each other."""
        lower, upper = self._corners(state)
        beside, groups = self._beside(state), []
        for some, past, inside in ancestry(state.depths, state.paths, state.past_depths, state.past_paths, _TOGETHER):
            shares = inside * state.mass[0, some]
            shares = shares / shares.sum(axis=1, keepdims=True)
            information = np.einsum("pi,pk,pj->kij", shares, state.past_precision[past], shares, optimize=True)
            size = np.arange(some.stop - some.start)
            information[:, size, size] += state.precision[some].T
            weighted = state.moment[some].T + state.past_moment[past].T @ shares
            evidence = Evidence(lower[some], upper[some], information, weighted)
            groups.append((some, evidence.beside(beside) if beside else evidence))
        return groups

    def _beside(self, state: PartitionState) -> Evidence | None:
        """What is known of slabs. From the end of the screening on it fades as evidence of bins does."""
        if state.screening is None:
            return None
        people = 0 if state.screening.open else state.own - state.screening.ended
        left = 0.5 ** (max(0, people) / self._half_life(state))
        return said(state.screening.faded(left), self._slabs, self._kept(state)[1])

    def _fitted(self, state: PartitionState) -> PartitionState:
        [(_, evidence)] = self._evidence(state)
        found = evidence.fitted(self._smoothness(state))
        lengths = state.lengths.copy()
        lengths[self._blocks(state)] = found.lengths
        return replace(state, lengths=lengths, spread=found.spread, fitted=state.seen)

    def _computed(self, state: PartitionState) -> PartitionState:
        smoothness, found = self._smoothness(state), []
        for some, evidence in self._evidence(state):
            found.append([part[: some.stop - some.start] for part in evidence.posterior(smoothness)])
        means, variances = (np.concatenate(parts) for parts in zip(*found, strict=True))
        return replace(state, mean=means, variance=variances)

    def _sifted(self, state: PartitionState) -> PartitionState:
        """Active arms are those that may be the best at some place of the bin, as far as is known now.

        No wide bin counts as more even than usual, whatever was fitted: it does not show what is hidden in it. An arm
        that was dropped comes back when what its neighbours learn makes it likely again.
        """
        leader = np.where(state.active, state.mean, -np.inf).argmax(axis=1)[:, None]
        lower, upper = self._corners(state)
        space = self._kept(state)[0]
        usual = Smoothness(usual_lengths(space.parts), _USUAL_SPREAD, space)
        within = self._smoothness(state).within(lower, upper)
        within = np.where(self._wide(state), np.maximum(within, usual.within(lower, upper)), within)[:, None]
        variance = state.variance + np.take_along_axis(state.variance, leader, axis=1) + 2 * within
        gap = np.take_along_axis(state.mean, leader, axis=1) - state.mean
        usual_most = _DROP_IN_KEY if self.spec.privacy.arm_in_key else _DROP
        most = np.where(self._large(state), _DROP_LARGE, usual_most)[:, None]
        return replace(state, active=~(gap > most * np.sqrt(variance)) & self.playable)

    def _halved(self, state: PartitionState) -> PartitionState:
        """Halve undecided bins whose best arm is known better than its values in the halves are alike."""
        lower, upper = self._corners(state)
        space, columns = self._kept(state)
        differences = self._smoothness(state).halves(lower, upper)
        leader = np.where(self.playable, state.mean, -np.inf).argmax(axis=1)[:, None]
        known = np.take_along_axis(state.variance, leader, axis=1)[:, 0] < _SPLIT * differences.max(axis=1)
        ready = known & (state.active.sum(axis=1) > 1) & (state.depths < space.depth)
        if not ready.any():
            return state
        deepest = ready & (state.depths == len(state.axes))
        if deepest.any():
            # A new level halves the column along which its bins differ most, of those that still part people.
            left = self._space.left(state.axes)[columns]
            differ = np.where(left, differences[deepest].mean(axis=0), -1.0)
            state = replace(state, axes=np.append(state.axes, columns[differ.argmax()]))
        copies, fresh, depths, paths = halved(state.depths, state.paths, ready)
        below = replace(state, depths=depths, paths=paths)
        mass = state.mass[:, copies] * np.where(fresh, self._expected(below) / self._expected(state)[copies], 1.0)
        return self._computed(
            replace(
                below,
                active=state.active[copies],
                precision=state.precision[copies] * ~fresh[:, None],
                moment=state.moment[copies] * ~fresh[:, None],
                past_depths=np.append(state.past_depths, state.depths[ready]),
                past_paths=np.append(state.past_paths, state.paths[ready]),
                past_precision=np.concatenate([state.past_precision, state.precision[ready]]),
                past_moment=np.concatenate([state.past_moment, state.moment[ready]]),
                mass=mass,
                mass_precision=np.where(fresh, (_HALF_KNOWN * mass) ** -2, state.mass_precision[:, copies]),
                bank=state.bank.halved(copies, fresh, ready) if state.bank else None,
            )
        )

    def _expected(self, state: PartitionState) -> Array:
        """Share of people in each bin as the spec alone has it; not 0, since people may be where nobody should be."""
        box = corners(state.depths, state.paths, state.axes, self.spec.dimension)
        return np.maximum(self._space.expected(*box), _NOBODY)

    def describe(self, state: PartitionState) -> dict[str, Any]:
        """The state for people: estimates of each active arm's mean reward with standard errors, bin by bin."""
        low, high = self.spec.reward.low, self.spec.reward.high
        means = low + (high - low) * (state.mean + 1) / 2
        errors = (high - low) * np.sqrt(state.variance) / 2
        screening = {"screening": told_of(state.screening, self._slabs)} if state.screening else {}
        return {**describe(state, means, errors, self.spec.experiment.arms), **self._moving(state), **screening}


def _news(state: PartitionState, before: int, times: float) -> bool:
    """Whether ``times`` as many people have reported as ``before``.

    Sources do not count once own people report: many reports of little information must not hold up a few of much.
    """
    others = state.seen - state.own if state.own else 0
    return state.seen - others >= times * max(0, before - others)


def _variance(release: KeyedSums) -> Array:
    """Variance of one report's score at each key, estimated from the hits."""
    if not len(release.hits):
        return np.ones(0)
    reports = max(1, release.reports)
    floor = max(release.hit_other / 4, release.hit_none / 4, 1 / reports)
    pooled = max(floor, float(release.hits.mean()) / reports)
    return np.asarray(np.maximum(floor, (release.hits + _POOL * pooled) / (release.reports + _POOL)))


def _best_only(state: PartitionState) -> NDArray[np.bool_]:
    # An arm that was added and not yet tried is nobody's best.
    told = (state.precision > 0).any(axis=0) | (state.past_precision > 0).any(axis=0)
    if state.screening:
        told |= (state.screening.precision > 0).any(axis=0)
    known = state.active & told
    candidates = np.where(known.any(axis=1, keepdims=True), known, state.active)
    best = np.where(candidates, state.mean, -np.inf).argmax(axis=1)
    return np.asarray(np.arange(state.active.shape[1])[None, :] == best[:, None])
