"""Paper 4, Figure 1: the frontier of regret and the error of conditional average treatment effects.

Outcomes of participants under ConSE and DP-ConSE are drawn in distribution; releases of many trials at once are drawn
from the exact laws of mechanisms.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from privateer_core.arrays import Array, Bools, Ints
from privateer_core.mechanisms.cell_pairs import CellPairs
from privateer_core.mechanisms.named_symbol import NamedSymbol
from privateer_core.primitives.public_coins import SlotLayout
from privateer_core.primitives.questions import KeyedHits
from privateer_core.privacy.terms import calibrate
from privateer_core.privacy.trust import TRUST, Crowd, NoiseOrigin
from privateer_core.spec.privacy import Privacy
from privateer_lab.render.pictures import COLOURS, create_panels
from privateer_papers.paper_4.world import ConSE, World
from privateer_papers.reproduction import Effort, Reproduction, Row, Rows, TableLine
from privateer_server.algorithms.trial.allocation import compute_matching_shares, raise_to_floor
from privateer_server.algorithms.trial.evidence.epochs import Epoch, TrialDesign
from privateer_server.algorithms.trial.evidence.trial_evidence import TrialEvidence
from privateer_server.algorithms.trial.evidence.weighted_sums import rates

MODELS: Final = ("none", "central", "shuffle", "local")
N_EPOCHS: Final = 12
EPOCH_GROWTH: Final = 1.5
LINE: Final = World(1)
SHUFFLE_PROMISE: Final = {"delta": 1e-6, "honest_fraction": 1.0, "local_epsilon_max": 8.0}
"""The promise of a batch; the batch size determines the epsilon of a single report."""
_ALPHAS: Final = (0.0, 1 / 12, 1 / 6, 1 / 4, 1 / 3)
_EPSILON: Final = 1.0
_PUBLISHED: Final = {
    "ConSE, published": (None, "algorithm"),
    "DP-ConSE, published": (_EPSILON, "algorithm"),
    "DP-ConSE, published, the proof's width": (_EPSILON, "appendix"),
}
_BOUND_LABEL: Final = "Theorems 3.2 and 4.5 with constant 1"
_LARGEST_ALPHA: Final = _ALPHAS[-1]


@dataclass(frozen=True)
class TrialSetting:
    """The mechanism of a trial: q, o, the decay of a curator's noise, and whether hits are counted."""

    keep: float = 1.0
    other: float = 0.0
    decay: float = 0.0
    counted: bool = True

    @property
    def noise(self) -> float:
        """Variance of the discrete Laplace noise on positive hits, and on negative ones."""
        return 2 * self.decay / (1 - self.decay) ** 2


@dataclass(frozen=True)
class Trials:
    """Many trials of the same design. ``means`` (J, K + 1) are mean rewards by segment and arm."""

    setting: TrialSetting
    segments: Array
    means: Array
    people: float
    count: int
    alpha: float = 0.05
    arms: tuple[float, ...] = (0.5, 0.5)

    def begin(self) -> TrialEvidence:
        """Return evidence without epochs."""
        return TrialEvidence.begin(self.design)

    @property
    def design(self) -> TrialDesign:
        """The design of all trials together."""
        return TrialDesign(
            self.alpha, self.people, np.array(self.arms), np.tile(self.segments, self.count), self.setting.counted
        )

    def draw_epoch(
        self,
        rng: np.random.Generator,
        people: float,
        shares: Array,
        drift: float = 0.0,
        setting: TrialSetting | None = None,
    ) -> Epoch:
        """Draw the release of an epoch under shares (count * J, K + 1); every mean is higher by ``drift``."""
        answers, p = setting or self.setting, np.tile(self.segments, self.count)[:, None]
        means = np.tile(self.means + drift, (self.count, 1))
        if answers.counted:
            hit, success = (
                shares * (answers.keep * p + 2 * answers.other),
                shares * (answers.keep * p * means + answers.other),
            )
            cells = np.stack([success, hit - success], axis=-1).reshape(self.count, -1)
            remainder = np.maximum(0.0, 1 - cells.sum(axis=1, keepdims=True))
            counts = rng.multinomial(int(people), np.concatenate([cells, remainder], axis=1))[:, :-1]
            outcome_counts = counts.reshape(*shares.shape, 2).astype(np.float64)
        else:
            hits = rng.multinomial(int(people), shares)
            successes = rng.binomial(hits, 0.5 + answers.keep * p * (2 * means - 1) / 2)
            outcome_counts = np.stack([successes, hits - successes], axis=-1).astype(np.float64)
        if answers.decay:
            positive_noise, negative_noise = rng.geometric(1 - answers.decay, (2, *outcome_counts.shape))
            outcome_counts = outcome_counts + positive_noise - negative_noise
        facts = (answers.keep, answers.other, answers.noise, shares)
        return Epoch(people, outcome_counts[..., 0], outcome_counts.sum(axis=-1), *facts, trials=self.count)


class TrialOutcome(NamedTuple):
    """The outcome of a trial."""

    regret: float  # over that of flipping coins
    error: float  # root mean square error of the effect
    # the loss of a participant after the trial by its recommendation: on average, relative to the loss of flipping a
    # coin, and at most, which is the paper's simple regret
    welfare: float
    worst: float


def play_matching(
    model: str, people: int, alpha: float, epsilon: float, seed: int, world: World = LINE
) -> TrialOutcome:
    """Play probability matching with a floor of people^-alpha/2, which recommends the arm of the larger estimate.

    Bins an axis are a power of 2: the largest up to n^(1/(2 + d)), or (q^2 n)^(1/(2 + 2 d)) where reports are of one
    bit. The curve has the power of 2 nearest to that number to the 1 - alpha, of effects weighted for the least
    variance.
    """
    privacy, rng, d = _build_privacy(model, epsilon), np.random.default_rng([seed, 4]), world.dimension
    sizes = _epoch_sizes(people)
    n_bins_real = people ** (1 / (2 + d))
    if trial_setting(privacy, 64, sizes[0]).counted is False:
        n_bins_real = (trial_setting(privacy, 64, sizes[0]).keep ** 2 * people) ** (1 / (2 + 2 * d))
    n_side = 2 ** int(np.log2(n_bins_real))
    n_wide, bins = min(n_side, 2 ** round((1 - alpha) * np.log2(n_bins_real))), n_side**d
    trials = Trials(trial_setting(privacy, bins, sizes[0]), np.full(bins, 1 / bins), world.means(n_side), people, 1)
    evidence, shares, regret = trials.begin(), np.full((bins, 2), 0.5), 0.0
    for size in sizes:
        regret += size / bins * float((shares * world.losses(n_side)).sum())
        evidence = evidence.add(trials.draw_epoch(rng, size, shares, setting=trial_setting(privacy, bins, size)))
        shares = raise_to_floor(compute_matching_shares(evidence, 0.0), people**-alpha / 2)
    effects, weights = _bin_effects(evidence)
    wide_effects = _average_in_wide_bins(effects, weights, world.wide_bin_indices(n_side, n_wide))
    return _build_outcome(world, regret / people, wide_effects, effects > 0)


def play_published(
    people: int, alpha: float, epsilon: float | None, width: str, seed: int, world: World = LINE
) -> TrialOutcome:
    """Play ConSE or DP-ConSE as published. They recommend the control if both arms are left."""
    rng = np.random.default_rng([seed, 4])
    algorithm = ConSE(people, alpha, epsilon, width, world.dimension)  # type: ignore[arg-type]
    bins, wide, n_half = algorithm.bins, algorithm.wide_bins, people // 2
    first, second = (rng.multinomial(n, np.full(count, 1 / count)) for n, count in ((n_half, bins), (n_half, wide)))
    ends = [
        run_elimination(algorithm, n, means, rng) for n, means in zip(first, world.means(algorithm.n_side), strict=True)
    ]
    n_tossed, treated = (np.array([n_used for n_used, _ in ends]), np.array([arm == 1 for _, arm in ends]))
    losses = world.losses(algorithm.n_side)
    arm_losses = losses[np.arange(bins), treated.astype(int)]
    estimates = [
        estimate_effect(algorithm, n, means, rng)
        for n, means in zip(second, world.means(algorithm.wide_side), strict=True)
    ]
    n_coins = np.array([n_used for n_used, _ in estimates])
    follow = (1 - n_coins / np.maximum(second, 1))[world.wide_bin_indices(algorithm.n_side, algorithm.wide_side)]
    regret = n_tossed @ losses.mean(axis=1) + (first - n_tossed) @ arm_losses
    regret += n_coins @ world.losses(algorithm.wide_side).mean(axis=1) + n_half / bins * (follow @ arm_losses)
    return _build_outcome(world, float(regret / people), np.array([effect for _, effect in estimates]), treated)


def _build_outcome(world: World, regret: float, curve: Array, is_treated: Bools) -> TrialOutcome:
    """Build the outcome of a trial, relative to the regret of a uniform choice."""
    losses = world.losses(world.side_from_cells(is_treated))
    welfare = float(losses[np.arange(len(is_treated)), is_treated.astype(int)].mean())
    return TrialOutcome(
        regret / world.uniform, world.root_mean_square_error(curve), welfare / world.uniform, world.max_loss(is_treated)
    )


def theorem_rates(people: int, alpha: float, dimension: int = 1) -> tuple[float, float]:
    """Return the rates of Theorems 3.2 and 4.5: n^(1 - alpha), over n, and the root of n^(-2 (1 - alpha)/(2 + d))."""
    return people**-alpha, people ** (-(1 - alpha) / (2 + dimension))


def trial_setting(privacy: Privacy, bins: int, batch: int) -> TrialSetting:
    """Return the mechanism of a trial with a number of bins, calibrated as the product's."""
    layout = SlotLayout(0, np.zeros((bins, int(privacy.trust.noise is NoiseOrigin.DEVICES)), np.uint32))
    mechanism = calibrate(privacy, batch, KeyedHits(layout)).mechanism
    if isinstance(mechanism, CellPairs):
        return TrialSetting(decay=float(np.exp(-1 / mechanism.scale)) if mechanism.scale else 0.0)
    assert isinstance(mechanism, NamedSymbol)
    return TrialSetting(mechanism.response.gain, mechanism.response.other, counted=mechanism.is_named)


def _epoch_sizes(people: int) -> list[int]:
    """Return the sizes of epochs: the total grows by the factor 1.5 with each epoch."""
    ends = np.rint(people * EPOCH_GROWTH ** np.arange(1.0 - N_EPOCHS, 1.0))
    return [int(size) for size in np.diff(ends, prepend=0)]


def _build_privacy(model: str, epsilon: float) -> Privacy:
    """Build the privacy section of a model, with the parts of a promise that it takes."""
    shuffled = SHUFFLE_PROMISE if TRUST[model].crowd is Crowd.BATCH else {}
    return Privacy.model_validate(
        {"model": model, **({"epsilon": epsilon} if TRUST[model].promises else {}), **shuffled}
    )


def _bin_effects(evidence: TrialEvidence) -> tuple[Array, Array]:
    """Return the estimated effect in each bin, and its weight, the inverse of its variance."""
    sums, design = evidence.precise, evidence.design
    rate, q, o, _ = rates(sums)
    shares = (rate - 2 * o) / q if design.counted else design.segments[:, None]
    gains = rate / (q * shares)
    return (gains * sums.difference)[:, 0], (1 / (np.square(gains) * sums.variance))[:, 0]


def _average_in_wide_bins(effects: Array, weights: Array, within: Ints) -> Array:
    """Return effects in wide bins: weighted means of the effects in their narrow bins."""
    return np.bincount(within, effects * weights) / np.bincount(within, weights)


def run_elimination(algorithm: ConSE, people: int, means: Array, rng: np.random.Generator) -> tuple[int, int | None]:
    """Return the number of a bin's participants until one arm is left, and that arm; None if both are left."""
    n_used, epoch = 0, 0
    while True:
        length = algorithm.randomize_length(algorithm.epoch_length(epoch), rng) if epoch else 1
        if n_used + length > people:
            return people, None
        n_used += length
        if epoch:
            difference = algorithm.mean_difference(*_flip_coins(length, means, rng), length, rng)
            if abs(difference) > algorithm.elimination_margin(epoch):
                return n_used, int(difference > 0)
        epoch += 1


def estimate_effect(algorithm: ConSE, people: int, means: Array, rng: np.random.Generator) -> tuple[int, float]:
    """Return the number of participants of a wide bin who flip coins, and its published effect."""
    length = algorithm.randomize_length(algorithm.coins, rng)
    n_used = min(people, length)
    return n_used, algorithm.effect(*_flip_coins(n_used, means, rng), length, rng)


def _flip_coins(people: int, means: Array, rng: np.random.Generator) -> tuple[Array, Array]:
    """Flip coins for a number of participants; return each arm's total reward and number of plays."""
    n_treated = rng.binomial(people, 0.5)
    played = np.array([people - n_treated, n_treated])
    return rng.binomial(played, means).astype(np.float64), played.astype(np.float64)


def _rows(effort: Effort) -> Iterator[Row]:
    """Yield the rows of the theorem's rates, then those of each policy and alpha."""
    people = 100_000 if effort.quick else 1_000_000
    alphas = _ALPHAS[::2] if effort.quick else _ALPHAS
    for alpha in alphas:
        regret, error = theorem_rates(people, alpha)
        yield {"policy": _BOUND_LABEL, "alpha": alpha, "people": people, "seed": 0, "regret": regret, "error": error}
    yield from effort.play(_play_point, ((name, people, alpha) for name in (*MODELS, *_PUBLISHED) for alpha in alphas))


def _play_point(name: str, people: int, alpha: float, seed: int) -> Row:
    """Return a row with a point: regret over that of a uniform choice, and root mean square error."""
    if name in MODELS:
        outcome = play_matching(name, people, alpha, _EPSILON, seed)
    else:
        outcome = play_published(people, alpha, *_PUBLISHED[name], seed)
    return {"policy": name, "alpha": alpha, "people": people, "seed": seed, **outcome._asdict()}


def _draw(title: str, rows: Rows) -> Figure:
    """Draw error against regret, with a line over alpha for each policy."""
    figure, axes = create_panels(1, title, height=4.6)
    axis: Any = axes[0]
    for index, (policy,) in enumerate(rows.group_by("policy")):
        subset = rows.where(policy=policy)
        _, (regret, _) = subset.curve("alpha", "regret")
        _, (error, _) = subset.curve("alpha", "error")
        style = "--" if policy == _BOUND_LABEL else ".:" if policy in _PUBLISHED else ".-"
        axis.plot(regret, error, style, color=COLOURS[(index - 1) % len(COLOURS)], label=policy)
    labels = {"xlabel": "regret over that of a uniform choice", "ylabel": "root mean square error of the effect"}
    axis.set(xscale="log", yscale="log", **labels)
    axis.legend(fontsize=6, title="each from alpha 0 (right) to 1/3 (left)", title_fontsize=6)
    return figure


def describe_points(rows: Rows) -> list[str]:
    """Describe each policy's regret and error at each alpha, and the cost of privacy at the largest."""
    people, alphas = rows.values("people")[0], ", ".join(f"{alpha:.3g}" for alpha in rows.values("alpha"))
    lines = [f"Regret over uniform / error at n = {people:,}, epsilon 1, alpha {alphas}:"]
    for (policy,) in rows.group_by("policy"):
        _, (regret, _) = rows.where(policy=policy).curve("alpha", "regret")
        _, (error, _) = rows.where(policy=policy).curve("alpha", "error")
        points = (f"{x:.3f}/{y:.3f}" for x, y in zip(regret, error, strict=True))
        lines.append(f"{policy}: {', '.join(points)}.")
    final = rows.where(alpha=_LARGEST_ALPHA)
    unprotected = final.where(policy=MODELS[0])
    for model in MODELS[1:]:
        subset = final.where(policy=model)
        x, y = (subset.mean(figure)[0] / unprotected.mean(figure)[0] for figure in ("regret", "error"))
        lines.append(f"At alpha 1/3 {model} has {x:.1f} times the regret and {y:.1f} times the error of none.")
    return [*lines, "Published DP-ConSE reaches its figures at about three times the epsilon that it states."]


def _format_pair(rows: Rows) -> str:
    return " / ".join(f"{rows.mean(name)[0]:.3f}" for name in ("regret", "error"))


def _sentence(rows: Rows) -> str:
    """Say regret and error of ours and of DP-ConSE at the largest alpha."""
    final, published_policy = rows.where(alpha=_LARGEST_ALPHA), list(_PUBLISHED)[1]
    return (
        f"At alpha 1/3, n = {rows.values('people')[0]:,} and epsilon 1, ours has regret over chance's / error of "
        f"{_format_pair(final.where(policy='central'))} with a curator, DP-ConSE as published "
        f"{_format_pair(final.where(policy=published_policy))}."
    )


def _compare(rows: Rows) -> list[TableLine]:
    """Return lines that compare ours with a curator, the paper's, and the rates of its theorems with constant 1."""
    pairs = {"no privacy": (next(iter(_PUBLISHED)), "none"), "epsilon 1": (list(_PUBLISHED)[1], "central")}
    return [
        TableLine(
            f"regret over chance's / error, {promise}, alpha {alpha:.3g}",
            f"rates {_format_pair(rows.where(alpha=alpha, policy=_BOUND_LABEL))}",
            *(_format_pair(rows.where(alpha=alpha, policy=policy)) for policy in policies),
        )
        for promise, policies in pairs.items()
        for alpha in rows.values("alpha")
    ]


PARETO: Final = Reproduction(
    "paper-4-figure-1",
    "Paper 4, Figure 1: regret and the error of effects",
    *(_rows, _draw, _sentence, _compare),
    minutes=1,
    remarks=describe_points,
)
