"""ConSE as printed, and DP-ConSE where something is promised (paper 4); their policies are the product's."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final, Literal, Self

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from privateer_core.algorithms import Algorithm
from privateer_core.algorithms.trial import TrialPolicy, TrialSpec
from privateer_core.algorithms.trial.sections import TrialSection
from privateer_core.answer import Answer
from privateer_core.answer.facts import Fact, Kind, Table
from privateer_core.answer.parts import Figures
from privateer_core.errors import SpecError
from privateer_core.primitives.contributions import CellHits
from privateer_core.spec.sections import parse_section
from privateer_papers.paper_4.numbers import ConSE
from privateer_papers.published_trust import PublishedPrivacy
from privateer_server.algorithms import NewRound, RoundsLearner

ROUNDS_MAX: Final = 2000
_THEIRS: Final = frozenset({"name", "alpha", "width", "rate"})
"""Keys that mean something to the paper; all others are the product's."""
Array = NDArray[np.float64]
Integers = NDArray[np.int64]
BOTH = -1
"""Stands for the arm of a bin that has two left."""


class DpConseSection(TrialSection):
    """The ``[algorithm]``."""

    name: Literal["paper-4-dp-conse"]  # type: ignore[assignment] # one of its own
    # where c_e, the private part of the width, is taken from. ``algorithm``: with a factor of 2, as in Algorithm 2;
    # ``appendix``: without, as in the proof.
    width: Literal["algorithm", "appendix"] = "algorithm"


class DpConseSpec(TrialSpec):
    """A trial by ConSE or DP-ConSE, in simulation alone."""

    floor_least: ClassVar[float] = 0.0

    privacy: PublishedPrivacy
    algorithm: DpConseSection

    @override
    def _check_growth(self) -> None:
        """Refuse what the paper does not have, too: one number in equal bins, its promise, and none of our rules."""
        super()._check_growth()
        people, table = self.experiment.horizon, self.experiment
        for name, field in DpConseSection.model_fields.items():
            if name not in _THEIRS and getattr(self.algorithm, name) != field.default:
                raise _refused(f"algorithm.{name}", "is not part of the paper's algorithm", "remove it")
        if self.segments.bins is None or len(self.segments.by) != 1:
            raise _refused("segments.bins", "must part one number in the paper's algorithm", "name it, and give bins")
        if self.privacy.trust.promises and self.privacy.delta < 1 / people:
            detail = "must be at least 1 / experiment.horizon, which is what the paper states"
            raise _refused("privacy.delta", detail, f"set it to {1 / people:.3g}")
        if people > ROUNDS_MAX * table.round_size:
            detail = f"makes more than {ROUNDS_MAX:,} rounds"
            raise _refused("experiment.round_size", detail, f"raise it to {-(-people // ROUNDS_MAX)}")

    @property
    @override
    def floor(self) -> float:
        return 0.0

    @property
    @override
    def looks(self) -> tuple[int, ...]:
        """Return the people after every round: rounds of one size, one of which ends with the first half of people."""
        people, size = self.experiment.horizon, self.experiment.round_size
        half = people // 2
        return (*range(size, half, size), half, *range(half + size, people, size), people)

    @classmethod
    @override
    def instances(cls) -> dict[str, Self]:
        """Return instances with many people, of whom the first half ends epochs, in few rounds."""
        promises: dict[str, dict[str, Any]] = {"none": {}, "central": {"epsilon": 1.0, "delta": 1e-4}}
        data = {
            "experiment": {"name": "test", "arms": ["a", "b"], "horizon": 20_000, "round_size": 2_500},
            "context": {"features": {"x": {"low": 0.0, "high": 1.0}}},
            "segments": {"by": ["x"], "bins": 4},
            "algorithm": {"name": "paper-4-dp-conse"},
        }
        return {
            model: parse_section(cls, data | {"privacy": {"model": model, **promise}})
            for model, promise in promises.items()
        }


def _refused(field: str, detail: str, remedy: str) -> SpecError:
    return SpecError(detail, field=field, remedy=remedy)


ALGORITHM: Final = Algorithm(DpConseSpec, TrialPolicy)


@dataclass(frozen=True)
class DpConseState:
    """What DP-ConSE's curator holds. Sums are exact: a state is no function of private releases, and is not shown."""

    seed: int  # of what the curator draws
    # rounds and people so far
    rounds: int
    reported: int
    arms: Integers  # shape (bins,): the arm that is left, `BOTH` while there are two
    # shape (bins,): the epoch that a bin is in, and how many people it has; in the second half, shape (wide bins,), how
    # many people flip coins
    epochs: Integers
    lengths: Integers
    # shape (bins, 2), in the second half (wide bins, 2): sums over the epoch, or over those who flip coins
    won: Array
    played: Array
    effects: Array  # shape (wide bins,): what is published; empty before the end


class DpConseLearner(RoundsLearner[DpConseSpec, DpConseState, TrialPolicy]):
    """Successive elimination in bins by the first half of people, then coins in wider bins (Algorithms 1 and 2).

    A round of one person is the paper's; a larger one may end an epoch later by what is left of it.
    """

    state_type = DpConseState
    growth = ("experiment.round_size", "the people in all")

    def __init__(self, spec: DpConseSpec) -> None:
        super().__init__(spec)
        self.half = spec.experiment.horizon // 2
        width = spec.algorithm.width
        self.numbers = ConSE(spec.experiment.horizon, spec.alpha, spec.privacy.epsilon, width)
        halvings = spec.segment_count.bit_length() - 1
        self.wide = 2 ** round((1 - spec.alpha) * halvings)

    @override
    def start(self, seed: int) -> DpConseState:
        """Return the state before any report."""
        if self.spec.arm_count != 2 or self.spec.experiment.retired:
            detail, remedy = "must be two in the paper's algorithm", "name a control and a treatment"
            raise SpecError(detail, field="experiment.arms", remedy=remedy)
        bins = self.spec.segment_count
        both, none = np.full(bins, BOTH, np.int64), np.zeros((bins, 2))
        zero, one = np.zeros(bins, np.int64), np.ones(bins, np.int64)
        return DpConseState(seed, 0, 0, both, zero, one, none, none, np.zeros(0))

    @override
    def policy(self, state: DpConseState, ahead: NewRound) -> TrialPolicy:
        """Return the policy of a round; at the end everybody gets the arm that is left in their bin."""
        spec, shares = self.spec, self._shares(state) if ahead.batch else _certain(state.arms)
        choice = spec.layout(state.seed, shares)
        question = spec.asked(choice) if ahead.batch else spec.named_cells(choice)
        return TrialPolicy(ahead.version, spec.segmentation, choice, self.terms(ahead, question))

    @override
    def changed(self, state: DpConseState, before: DpConseSpec) -> DpConseState:
        """Refuse: all lengths follow from the people planned."""
        detail, remedy = "runs in simulation alone, as it began", "use another algorithm"
        raise SpecError(detail, field="algorithm.name", remedy=remedy)

    @override
    def begun(self, state: DpConseState, before: DpConseSpec) -> DpConseState:
        """Refuse: nothing is published that another trial could begin with."""
        return self.changed(state, before)

    @override
    def learn(self, state: DpConseState, policy: TrialPolicy, release: CellHits) -> DpConseState:
        """Add a round; end epochs and halves that are full, and publish effects with the last person."""
        rng = np.random.default_rng([state.seed, state.rounds])
        won, played = (one.reshape(-1, 2) for one in (release.positive, release.hits))
        first, reported, tossed = (
            state.reported < self.half,
            state.reported + release.reports,
            self._tossing(state)[:, None],
        )
        if not first:
            won, played = (one.reshape(self.wide, -1, 2).sum(axis=1) for one in (won, played))
        state = replace(
            state,
            rounds=state.rounds + 1,
            reported=reported,
            won=state.won + np.where(tossed, won, 0.0),
            played=state.played + np.where(tossed, played, 0.0),
        )
        if first:
            state = self._eliminated(state, rng)
            return self._widened(state, rng) if reported >= self.half else state
        return (
            replace(state, effects=self._effects(state, rng)) if not self.spec.next_round("", reported).batch else state
        )

    def _eliminated(self, state: DpConseState, rng: np.random.Generator) -> DpConseState:
        """End epochs that have their people: compare means, lines 10 to 17."""
        arms, epochs, lengths = state.arms.copy(), state.epochs.copy(), state.lengths.copy()
        won, played = state.won.copy(), state.played.copy()
        full = (arms == BOTH) & (played.sum(axis=1) >= lengths)
        for k in np.flatnonzero(full).tolist():
            epoch = int(epochs[k])
            if epoch:
                apart = self.numbers.apart(won[k], played[k], int(lengths[k]), rng)
                arms[k] = int(apart > 0) if abs(apart) > self.numbers.margin(epoch) else BOTH
            epochs[k] = epoch + 1
            lengths[k] = self.numbers.randomized(self.numbers.length(epoch + 1), rng)
            won[k] = played[k] = 0.0
        return replace(state, arms=arms, epochs=epochs, lengths=lengths, won=won, played=played)

    def _widened(self, state: DpConseState, rng: np.random.Generator) -> DpConseState:
        """Begin the second half: nobody has flipped a coin in the wide bins, lines 22 to 26."""
        lengths = np.array([self.numbers.randomized(self.numbers.coins, rng) for _ in range(self.wide)])
        none = np.zeros((self.wide, 2))
        return replace(state, lengths=lengths, won=none, played=none)

    def _tossing(self, state: DpConseState) -> NDArray[np.bool_]:
        """Whether people of each bin, or in the second half of each wide bin, flip coins."""
        return np.asarray(
            state.arms == BOTH if state.reported < self.half else state.played.sum(axis=1) < state.lengths
        )

    def _shares(self, state: DpConseState) -> Array:
        """Return the shares of the arms in each bin, shape (bins, 2)."""
        tossing = self._tossing(state)
        return np.where(np.repeat(tossing, len(state.arms) // len(tossing))[:, None], 0.5, _certain(state.arms))

    def _effects(self, state: DpConseState, rng: np.random.Generator) -> Array:
        """Return what is published, line 36."""
        rows = zip(state.won, state.played, state.lengths.tolist(), strict=True)
        return np.array([self.numbers.effect(won, played, length, rng) for won, played, length in rows])

    @override
    def answer(self, state: DpConseState) -> Answer:
        """Return the effects that are published at the end, and the arms left; the paper has no intervals."""
        over = bool(len(state.effects))
        return Answer(
            status="ended" if over else "learning",
            people=state.reported,
            rounds=None,
            confidence=None,
            ended="its horizon" if over else None,
            parts=(self._published(state), self._left(state)) if over else (),
        )

    @staticmethod
    def _left(state: DpConseState) -> Figures:
        decided = int((state.arms != BOTH).sum())
        return Figures("arms left", (Fact("bins", len(state.arms), "count"), Fact("bins decided", decided, "count")))

    def _published(self, state: DpConseState) -> Table:
        options, effects = self.spec.options, 2 * self.spec.reward.half_range * state.effects
        around = np.repeat(effects, len(state.arms) // self.wide)
        bins = zip(self.spec.segment_names, state.arms.tolist(), around.tolist(), strict=True)
        rows = tuple((name, options[max(arm, 0)], arm != BOTH, effect) for name, arm, effect in bins)
        columns: dict[str, Kind] = {
            "segment": "words",
            "arm": "words",
            "decided": "yes or no",
            "effect around it": "difference",
        }
        return Table.of("what is published", columns, rows)

    @override
    def figures(self, state: DpConseState) -> dict[str, float]:
        """Return the share of bins that have one arm left."""
        return {"decided": float((state.arms != BOTH).mean())}


def _certain(arms: Integers) -> Array:
    """Return shares (bins, 2) where everybody gets the arm left, or the control while there are two."""
    return np.eye(2)[np.maximum(arms, 0)]
