"""ConSE as printed, and DP-ConSE under a promise (paper 4): spec and learner; their policies are the product's."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final, Literal, Self

import numpy as np
from pydantic import Field
from typing_extensions import override

from privateer_core.algorithms import Algorithm
from privateer_core.algorithms.trial import TrialPolicy, TrialSpec
from privateer_core.algorithms.trial.sections import TrialSection
from privateer_core.answer import Answer
from privateer_core.answer.facts import Fact, Kind, Table
from privateer_core.answer.parts import Figures
from privateer_core.arrays import Array, Bools, Ints
from privateer_core.errors import SpecError
from privateer_core.primitives.contributions import CellHits
from privateer_core.spec.sections import parse_section
from privateer_papers.paper_4.world import ConSE
from privateer_papers.published_trust import PublishedPrivacy
from privateer_server.algorithms import NewRound, RoundsLearner

MAX_ROUNDS: Final = 2000
ALPHA_MAX: Final = 1 / 3
_PAPER_KEYS: Final = frozenset({"name", "alpha", "width"})
"""Keys of the paper's algorithm; all other keys are the product's."""
BOTH_ARMS = -1
"""Placeholder for the arm of a bin in which both arms are left."""


class DpConseSection(TrialSection):
    """The ``[algorithm]``."""

    name: Literal["paper-4-dp-conse"]  # type: ignore[assignment] # one of its own
    # where c_e, the private part of the width, is taken from. ``algorithm``: with a factor of 2, as in Algorithm 2;
    # ``appendix``: without, as in the proof.
    width: Literal["algorithm", "appendix"] = "algorithm"
    # alpha, by which exploration decays: 0 to 1 / 3, or by default 1 / 3, which loses the least (Theorem 4.6)
    alpha: float = Field(default=ALPHA_MAX, ge=0, le=ALPHA_MAX)


class DpConseSpec(TrialSpec):
    """A trial by ConSE or DP-ConSE, in simulation alone."""

    min_floor: ClassVar[float] = 0.0

    privacy: PublishedPrivacy
    algorithm: DpConseSection

    @override
    def _check_growth(self) -> None:
        """Refuse settings that the paper does not have, too: it has a number in equal bins, and none of our rules."""
        super()._check_growth()
        people, table = self.experiment.horizon, self.experiment
        for name, field in DpConseSection.model_fields.items():
            if name not in _PAPER_KEYS and getattr(self.algorithm, name) != field.default:
                raise _spec_error(f"algorithm.{name}", "is not part of the paper's algorithm", "remove it")
        if self.segments.bins is None or len(self.segments.features) != 1:
            raise _spec_error(
                "segments.bins", "must part one number in the paper's algorithm", "name it, and give bins"
            )
        if self.privacy.trust.promises and self.privacy.delta < 1 / people:
            detail = "must be at least 1 / experiment.horizon, which is what the paper states"
            raise _spec_error("privacy.delta", detail, f"set it to {1 / people:.3g}")
        if people > MAX_ROUNDS * table.round_size:
            detail = f"makes more than {MAX_ROUNDS:,} rounds"
            raise _spec_error("experiment.round_size", detail, f"raise it to {-(-people // MAX_ROUNDS)}")

    @property
    @override
    def min_arm_share(self) -> float:
        return 0.0

    @property
    @override
    def looks(self) -> tuple[int, ...]:
        """Return the number of participants after every round; one of the rounds ends with the first half."""
        people, size = self.experiment.horizon, self.experiment.round_size
        n_half = people // 2
        return (*range(size, n_half, size), n_half, *range(n_half + size, people, size), people)

    @classmethod
    @override
    def instances(cls) -> dict[str, Self]:
        """Return instances with many participants in few rounds, so that epochs end in the first half."""
        promises: dict[str, dict[str, Any]] = {"none": {}, "central": {"epsilon": 1.0, "delta": 1e-4}}
        data = {
            "experiment": {"name": "test", "arms": ["a", "b"], "horizon": 20_000, "round_size": 2_500},
            "context": {"features": {"x": {"low": 0.0, "high": 1.0}}},
            "segments": {"features": ["x"], "bins": 4},
            "algorithm": {"name": "paper-4-dp-conse", "alpha": ALPHA_MAX / 2},
        }
        return {
            model: parse_section(cls, data | {"privacy": {"model": model, **promise}})
            for model, promise in promises.items()
        }


def _spec_error(field: str, detail: str, remedy: str) -> SpecError:
    return SpecError(detail, field=field, remedy=remedy)


ALGORITHM: Final = Algorithm(DpConseSpec, TrialPolicy)


@dataclass(frozen=True)
class DpConseState:
    """The state of DP-ConSE's curator. Sums are exact: a state is no function of private releases, and is secret."""

    seed: int  # of what the curator draws
    # rounds and people so far
    rounds: int
    reported: int
    arms: Ints  # shape (bins,): the arm that is left, `BOTH` while there are two
    # shape (bins,): the epoch of a bin, and its number of participants; in the second half, shape (wide bins,), the
    # number of participants who flip coins
    epochs: Ints
    lengths: Ints
    # shape (bins, 2), in the second half (wide bins, 2): sums over the epoch, or over participants who flip coins
    won: Array
    played: Array
    effects: Array  # shape (wide bins,): the published effects; empty before the end


class DpConseLearner(RoundsLearner[DpConseSpec, DpConseState, TrialPolicy]):
    """A learner by successive elimination in bins in the first half, then coins in wide bins (Algorithms 1 and 2).

    The paper's rounds have one participant; in larger rounds an epoch may end later, by the rest of the round.
    """

    state_type = DpConseState
    growth = ("experiment.round_size", "the people in all")

    def __init__(self, spec: DpConseSpec) -> None:
        super().__init__(spec)
        self.half = spec.experiment.horizon // 2
        width = spec.algorithm.width
        self.numbers = ConSE(spec.experiment.horizon, spec.algorithm.alpha, spec.privacy.epsilon, width)
        halvings = spec.segment_count.bit_length() - 1
        self.wide = 2 ** round((1 - spec.algorithm.alpha) * halvings)

    @override
    def start(self, seed: int) -> DpConseState:
        """Return the state before any report; refuse other than two arms."""
        if self.spec.arm_count != 2 or self.spec.experiment.retired_arms:
            detail, remedy = "must be two in the paper's algorithm", "name a control and a treatment"
            raise SpecError(detail, field="experiment.arms", remedy=remedy)
        bins = self.spec.segment_count
        both_arms, zero_sums = np.full(bins, BOTH_ARMS, np.int64), np.zeros((bins, 2))
        zeros, first_epochs = np.zeros(bins, np.int64), np.ones(bins, np.int64)
        return DpConseState(seed, 0, 0, both_arms, zeros, first_epochs, zero_sums, zero_sums, np.zeros(0))

    @override
    def policy(self, state: DpConseState, next_round: NewRound) -> TrialPolicy:
        """Return the policy of a round; at the end all participants get the arm that is left in their bin."""
        spec, shares = self.spec, self._shares(state) if next_round.batch_size else _certain_shares(state.arms)
        choice = spec.layout(state.seed, shares)
        question = spec.make_question(choice) if next_round.batch_size else spec.make_named_question(choice)
        return TrialPolicy(next_round.version, spec.segmentation, choice, self.calibrate_terms(next_round, question))

    @override
    def apply_spec_change(self, state: DpConseState, before: DpConseSpec) -> DpConseState:
        """Refuse: all lengths follow from the planned number of participants."""
        detail, remedy = "runs in simulation alone, as it began", "use another algorithm"
        raise SpecError(detail, field="algorithm.name", remedy=remedy)

    @override
    def start_from_state(self, state: DpConseState, before: DpConseSpec) -> DpConseState:
        """Refuse: no published figure can start another trial."""
        return self.apply_spec_change(state, before)

    @override
    def learn(self, state: DpConseState, policy: TrialPolicy, release: CellHits) -> DpConseState:
        """Add a round; end complete epochs and halves, and publish effects after the last participant."""
        rng = np.random.default_rng([state.seed, state.rounds])
        won, played = (values.reshape(-1, 2) for values in (release.positive, release.hits))
        is_first_half, reported, is_tossing = (
            state.reported < self.half,
            state.reported + release.reports,
            self._is_tossing(state)[:, None],
        )
        if not is_first_half:
            won, played = (values.reshape(self.wide, -1, 2).sum(axis=1) for values in (won, played))
        state = replace(
            state,
            rounds=state.rounds + 1,
            reported=reported,
            won=state.won + np.where(is_tossing, won, 0.0),
            played=state.played + np.where(is_tossing, played, 0.0),
        )
        if is_first_half:
            state = self._eliminate_arms(state, rng)
            return self._begin_second_half(state, rng) if reported >= self.half else state
        return (
            replace(state, effects=self._effects(state, rng))
            if not self.spec.next_round("", reported).batch_size
            else state
        )

    def _eliminate_arms(self, state: DpConseState, rng: np.random.Generator) -> DpConseState:
        """End epochs that have all their participants: compare means, lines 10 to 17."""
        arms, epochs, lengths = state.arms.copy(), state.epochs.copy(), state.lengths.copy()
        won, played = state.won.copy(), state.played.copy()
        is_done = (arms == BOTH_ARMS) & (played.sum(axis=1) >= lengths)
        for k in np.flatnonzero(is_done).tolist():
            epoch = int(epochs[k])
            if epoch:
                difference = self.numbers.mean_difference(won[k], played[k], int(lengths[k]), rng)
                arms[k] = int(difference > 0) if abs(difference) > self.numbers.elimination_margin(epoch) else BOTH_ARMS
            epochs[k] = epoch + 1
            lengths[k] = self.numbers.randomize_length(self.numbers.epoch_length(epoch + 1), rng)
            won[k] = played[k] = 0.0
        return replace(state, arms=arms, epochs=epochs, lengths=lengths, won=won, played=played)

    def _begin_second_half(self, state: DpConseState, rng: np.random.Generator) -> DpConseState:
        """Begin the second half without coins flipped in the wide bins, lines 22 to 26."""
        lengths = np.array([self.numbers.randomize_length(self.numbers.coins, rng) for _ in range(self.wide)])
        zero_sums = np.zeros((self.wide, 2))
        return replace(state, lengths=lengths, won=zero_sums, played=zero_sums)

    def _is_tossing(self, state: DpConseState) -> Bools:
        """Whether participants of each bin, or in the second half of each wide bin, flip coins."""
        return np.asarray(
            state.arms == BOTH_ARMS if state.reported < self.half else state.played.sum(axis=1) < state.lengths
        )

    def _shares(self, state: DpConseState) -> Array:
        """Return the shares of the arms in each bin, shape (bins, 2)."""
        tossing = self._is_tossing(state)
        return np.where(np.repeat(tossing, len(state.arms) // len(tossing))[:, None], 0.5, _certain_shares(state.arms))

    def _effects(self, state: DpConseState, rng: np.random.Generator) -> Array:
        """Return the published effects, line 36."""
        rows = zip(state.won, state.played, state.lengths.tolist(), strict=True)
        return np.array([self.numbers.effect(won, played, length, rng) for won, played, length in rows])

    @override
    def answer(self, state: DpConseState) -> Answer:
        """Return the effects that are published at the end, and the arms left; the paper has no intervals."""
        is_over = bool(len(state.effects))
        return Answer(
            stage="ended" if is_over else "learning",
            people=state.reported,
            rounds=None,
            confidence=None,
            stop_reason="its horizon" if is_over else None,
            parts=(self._effects_table(state), self._summarize_arms(state)) if is_over else (),
        )

    @staticmethod
    def _summarize_arms(state: DpConseState) -> Figures:
        n_decided = int((state.arms != BOTH_ARMS).sum())
        return Figures("arms left", (Fact("bins", len(state.arms), "count"), Fact("bins decided", n_decided, "count")))

    def _effects_table(self, state: DpConseState) -> Table:
        """Return the table of published arms and effects by segment."""
        options, effects = self.spec.options, 2 * self.spec.reward.half_range * state.effects
        nearby_effects = np.repeat(effects, len(state.arms) // self.wide)
        bins = zip(self.spec.segment_names, state.arms.tolist(), nearby_effects.tolist(), strict=True)
        rows = tuple((name, options[max(arm, 0)], arm != BOTH_ARMS, effect) for name, arm, effect in bins)
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
        return {"decided": float((state.arms != BOTH_ARMS).mean())}


def _certain_shares(arms: Ints) -> Array:
    """Return shares (bins, 2) with 1 for the arm that is left, or for the control while both are left."""
    return np.eye(2)[np.maximum(arms, 0)]
