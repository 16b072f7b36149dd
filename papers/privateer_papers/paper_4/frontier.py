"""Paper 4, Figure 1: the frontier of regret and the error of conditional average treatment effects.

What becomes of people under ConSE and DP-ConSE is drawn person by person, in distribution; releases of many trials at
once are drawn from the exact laws of mechanisms.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from privateer_core.mechanisms.cell_pairs import CellPairs
from privateer_core.mechanisms.named_symbol import NamedSymbol
from privateer_core.primitives.public_coins import SlotLayout
from privateer_core.primitives.questions import KeyedHits
from privateer_core.privacy.terms import calibrate
from privateer_core.privacy.trust import TRUST
from privateer_core.spec.privacy import Privacy
from privateer_lab.pages.plots import COLOURS, panels
from privateer_lab.simulation.parallel import each
from privateer_papers.paper_4.numbers import ConSE
from privateer_papers.paper_4.world import World
from privateer_papers.reproduction import Compared, Effort, Reproduction, Row, Rows
from privateer_server.algorithms.trial.allocation import floored, matching
from privateer_server.algorithms.trial.evidence.epochs import Epoch, TrialDesign
from privateer_server.algorithms.trial.evidence.trial_evidence import TrialEvidence
from privateer_server.algorithms.trial.evidence.weighted_sums import rates

Array = NDArray[np.float64]
MODELS: Final = ("none", "central", "shuffle", "local")
EPOCHS: Final = 12
GROWTH: Final = 1.5
LINE: Final = World(1)
SHUFFLED: Final = {"delta": 1e-6, "honest_fraction": 1.0, "local_epsilon_max": 8.0}
"""The promise of a batch; its size decides what a report costs by itself."""
_ALPHAS: Final = (0.0, 1 / 12, 1 / 6, 1 / 4, 1 / 3)
_EPSILON: Final = 1.0
_PUBLISHED: Final = {
    "ConSE, published": (None, "algorithm"),
    "DP-ConSE, published": (_EPSILON, "algorithm"),
    "DP-ConSE, published, the proof's width": (_EPSILON, "appendix"),
}
_BOUND: Final = "Theorems 3.2 and 4.5 with constant 1"
_LATEST: Final = _ALPHAS[-1]


@dataclass(frozen=True)
class TrialSetting:
    """Answers of people: q, o, the decay of a curator's noise, and whether hits are counted (`TrialDesign.counted`)."""

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
    """Many trials alike. ``means`` (J, K + 1) are what people of a segment earn from an arm."""

    setting: TrialSetting
    segments: Array
    means: Array
    people: float
    count: int
    alpha: float = 0.05
    arms: tuple[float, ...] = (0.5, 0.5)

    def begin(self) -> TrialEvidence:
        """Return evidence of nothing."""
        return TrialEvidence.begin(self.design)

    @property
    def design(self) -> TrialDesign:
        """The design of all trials together."""
        return TrialDesign(
            self.alpha, self.people, np.array(self.arms), np.tile(self.segments, self.count), self.setting.counted
        )

    def epoch(
        self,
        rng: np.random.Generator,
        people: float,
        shares: Array,
        drift: float = 0.0,
        setting: TrialSetting | None = None,
    ) -> Epoch:
        """Draw what an epoch releases under shares (count * J, K + 1); every mean is higher by ``drift``."""
        told, p = setting or self.setting, np.tile(self.segments, self.count)[:, None]
        means = np.tile(self.means + drift, (self.count, 1))
        if told.counted:
            hit, right = shares * (told.keep * p + 2 * told.other), shares * (told.keep * p * means + told.other)
            cells = np.stack([right, hit - right], axis=-1).reshape(self.count, -1)
            rest = np.maximum(0.0, 1 - cells.sum(axis=1, keepdims=True))
            drawn = rng.multinomial(int(people), np.concatenate([cells, rest], axis=1))[:, :-1]
            pair = drawn.reshape(*shares.shape, 2).astype(np.float64)
        else:
            hits = rng.multinomial(int(people), shares)
            yes = rng.binomial(hits, 0.5 + told.keep * p * (2 * means - 1) / 2)
            pair = np.stack([yes, hits - yes], axis=-1).astype(np.float64)
        if told.decay:
            one, other = rng.geometric(1 - told.decay, (2, *pair.shape))
            pair = pair + one - other
        facts = (told.keep, told.other, told.noise, shares)
        return Epoch(people, pair[..., 0], pair.sum(axis=-1), *facts, trials=self.count)


class PlayedTrial(NamedTuple):
    """What an experiment comes to."""

    regret: float  # over that of flipping coins
    error: float  # root mean square error of the effect
    # what a person after the experiment loses by what it recommends there, on average over what flipping a coin loses,
    # and at most: the paper's simple regret
    welfare: float
    worst: float


def matched(model: str, people: int, alpha: float, epsilon: float, seed: int, world: World = LINE) -> PlayedTrial:
    """Return what comes of probability matching with a floor of people^-alpha/2; it recommends the larger estimate.

    Bins an axis are a power of 2: the largest up to n^(1/(2 + d)), or (q^2 n)^(1/(2 + 2 d)) where reports are of one
    bit. The curve has the power of 2 nearest to that number to the 1 - alpha, of effects weighted for the least
    variance.
    """
    privacy, rng, d = _privacy(model, epsilon), np.random.default_rng([seed, 4]), world.dimension
    sizes = _sizes(people)
    number = people ** (1 / (2 + d))
    if setting_of(privacy, 64, sizes[0]).counted is False:
        number = (setting_of(privacy, 64, sizes[0]).keep ** 2 * people) ** (1 / (2 + 2 * d))
    side = 2 ** int(np.log2(number))
    wide, bins = min(side, 2 ** round((1 - alpha) * np.log2(number))), side**d
    trials = Trials(setting_of(privacy, bins, sizes[0]), np.full(bins, 1 / bins), world.means(side), people, 1)
    evidence, shares, lost = trials.begin(), np.full((bins, 2), 0.5), 0.0
    for size in sizes:
        lost += size / bins * float((shares * world.losses(side)).sum())
        evidence = evidence.add(trials.epoch(rng, size, shares, setting=setting_of(privacy, bins, size)))
        shares = floored(matching(evidence, 0.0), people**-alpha / 2)
    effects, weights = _effects(evidence)
    curve = _widened(effects, weights, world.within(side, wide))
    return _outcome(world, lost / people, curve, effects > 0)


def published(
    people: int, alpha: float, epsilon: float | None, width: str, seed: int, world: World = LINE
) -> PlayedTrial:
    """Return what comes of ConSE and of DP-ConSE. Where both arms are left, they recommend the control."""
    rng = np.random.default_rng([seed, 4])
    algorithm = ConSE(people, alpha, epsilon, width, world.dimension)  # type: ignore[arg-type]
    bins, wide, half = algorithm.bins, algorithm.wide_bins, people // 2
    first, second = (rng.multinomial(n, np.full(count, 1 / count)) for n, count in ((half, bins), (half, wide)))
    ends = [eliminate(algorithm, n, means, rng) for n, means in zip(first, world.means(algorithm.side), strict=True)]
    tossed, treated = np.array([used for used, _ in ends]), np.array([arm == 1 for _, arm in ends])
    losses = world.losses(algorithm.side)
    left = losses[np.arange(bins), treated.astype(int)]
    estimates = [
        estimate(algorithm, n, means, rng) for n, means in zip(second, world.means(algorithm.wide_side), strict=True)
    ]
    coins = np.array([used for used, _ in estimates])
    follow = (1 - coins / np.maximum(second, 1))[world.within(algorithm.side, algorithm.wide_side)]
    lost = tossed @ losses.mean(axis=1) + (first - tossed) @ left
    lost += coins @ world.losses(algorithm.wide_side).mean(axis=1) + half / bins * (follow @ left)
    return _outcome(world, float(lost / people), np.array([effect for _, effect in estimates]), treated)


def _outcome(world: World, lost: float, curve: Array, treated: NDArray[np.bool_]) -> PlayedTrial:
    losses = world.losses(world.side_of(treated))
    welfare = float(losses[np.arange(len(treated)), treated.astype(int)].mean())
    return PlayedTrial(lost / world.uniform, world.error_of(curve), welfare / world.uniform, world.worst(treated))


def bound(people: int, alpha: float, dimension: int = 1) -> tuple[float, float]:
    """Return the rates of Theorems 3.2 and 4.5: n^(1 - alpha), over n, and the root of n^(-2 (1 - alpha)/(2 + d))."""
    return people**-alpha, people ** (-(1 - alpha) / (2 + dimension))


def setting_of(privacy: Privacy, bins: int, batch: int) -> TrialSetting:
    """Return how people answer about so many bins, by what calibrates the product's mechanisms."""
    layout = SlotLayout(0, np.zeros((bins, 0 if privacy.trust.curated else 1), np.uint32))
    mechanism = calibrate(privacy, batch, KeyedHits(layout)).mechanism
    if isinstance(mechanism, CellPairs):
        return TrialSetting(decay=float(np.exp(-1 / mechanism.scale)) if mechanism.scale else 0.0)
    assert isinstance(mechanism, NamedSymbol)
    return TrialSetting(mechanism.response.gain, mechanism.response.other, counted=mechanism.named)


def _sizes(people: int) -> list[int]:
    """Return the people of each epoch: at its end there are 1.5 times those at the end of the one before."""
    ends = np.rint(people * GROWTH ** np.arange(1.0 - EPOCHS, 1.0))
    return [int(size) for size in np.diff(ends, prepend=0)]


def _privacy(model: str, epsilon: float) -> Privacy:
    shuffled = SHUFFLED if TRUST[model].batched else {}
    return Privacy.model_validate(
        {"model": model, **({"epsilon": epsilon} if TRUST[model].promises else {}), **shuffled}
    )


def _effects(evidence: TrialEvidence) -> tuple[Array, Array]:
    """Return the effect that is estimated in each bin, and its weight: the inverse of its variance."""
    sums, design = evidence.precise, evidence.design
    rate, q, o, _ = rates(sums)
    share = (rate - 2 * o) / q if design.counted else design.segments[:, None]
    gain = rate / (q * share)
    return (gain * sums.difference)[:, 0], (1 / (np.square(gain) * sums.variance))[:, 0]


def _widened(effects: Array, weights: Array, within: NDArray[np.int64]) -> Array:
    """Return effects in wide bins: weighted means of those of the narrow ones in them."""
    return np.bincount(within, effects * weights) / np.bincount(within, weights)


def eliminate(algorithm: ConSE, people: int, means: Array, rng: np.random.Generator) -> tuple[int, int | None]:
    """Return after how many of a bin's people one arm is left, and which; None if both are after all of them."""
    used, epoch = 0, 0
    while True:
        length = algorithm.randomized(algorithm.length(epoch), rng) if epoch else 1
        if used + length > people:
            return people, None
        used += length
        if epoch:
            apart = algorithm.apart(*_tossed(length, means, rng), length, rng)
            if abs(apart) > algorithm.margin(epoch):
                return used, int(apart > 0)
        epoch += 1


def estimate(algorithm: ConSE, people: int, means: Array, rng: np.random.Generator) -> tuple[int, float]:
    """Return how many people of a wide bin flip coins, and the effect that is published of it."""
    length = algorithm.randomized(algorithm.coins, rng)
    used = min(people, length)
    return used, algorithm.effect(*_tossed(used, means, rng), length, rng)


def _tossed(people: int, means: Array, rng: np.random.Generator) -> tuple[Array, Array]:
    """Have so many people flip coins: return what each arm won, and how often it was played."""
    treated = rng.binomial(people, 0.5)
    played = np.array([people - treated, treated])
    return rng.binomial(played, means).astype(np.float64), played.astype(np.float64)


def _rows(effort: Effort) -> Iterator[Row]:
    people = 100_000 if effort.quick else 1_000_000
    alphas = _ALPHAS[::2] if effort.quick else _ALPHAS
    for alpha in alphas:
        regret, error = bound(people, alpha)
        yield {"policy": _BOUND, "alpha": alpha, "people": people, "seed": 0, "regret": regret, "error": error}
    policies = (*MODELS, *_PUBLISHED)
    tasks = [(name, people, alpha, seed) for seed in range(effort.seeds) for name in policies for alpha in alphas]
    yield from each(_point, tasks, effort.jobs, effort.backend)


def _point(name: str, people: int, alpha: float, seed: int) -> Row:
    """Return one point: regret over that of a uniform choice, and root mean square error."""
    if name in MODELS:
        found = matched(name, people, alpha, _EPSILON, seed)
    else:
        found = published(people, alpha, *_PUBLISHED[name], seed)
    return {"policy": name, "alpha": alpha, "people": people, "seed": seed, **found._asdict()}


def _draw(title: str, rows: Rows) -> Figure:
    figure, axes = panels(1, title, height=4.6)
    axis: Any = axes[0]
    for number, (policy,) in enumerate(rows.by("policy")):
        found = rows.where(policy=policy)
        _, (regret, _) = found.curve("alpha", "regret")
        _, (error, _) = found.curve("alpha", "error")
        style = "--" if policy == _BOUND else ".:" if policy in _PUBLISHED else ".-"
        axis.plot(regret, error, style, color=COLOURS[(number - 1) % len(COLOURS)], label=policy)
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_xlabel("regret over that of a uniform choice")
    axis.set_ylabel("root mean square error of the effect")
    axis.legend(fontsize=6, title="each from alpha 0 (right) to 1/3 (left)", title_fontsize=6)
    return figure


def verdict(rows: Rows) -> str:
    """Say where each policy stands at each alpha, and what privacy costs at the largest."""
    people, alphas = rows.values("people")[0], ", ".join(f"{alpha:.3g}" for alpha in rows.values("alpha"))
    lines = [f"Regret over uniform / error at n = {people:,}, epsilon 1, alpha {alphas}:"]
    for (policy,) in rows.by("policy"):
        _, (regret, _) = rows.where(policy=policy).curve("alpha", "regret")
        _, (error, _) = rows.where(policy=policy).curve("alpha", "error")
        points = (f"{lost:.3f}/{wrong:.3f}" for lost, wrong in zip(regret, error, strict=True))
        lines.append(f"{policy}: {', '.join(points)}.")
    at_last = rows.where(alpha=_LATEST)
    none = at_last.where(policy=MODELS[0])
    for model in MODELS[1:]:
        found = at_last.where(policy=model)
        lost, wrong = (found.mean(figure)[0] / none.mean(figure)[0] for figure in ("regret", "error"))
        lines.append(f"At alpha 1/3 {model} has {lost:.1f} times the regret and {wrong:.1f} times the error of none.")
    lines.append("Published DP-ConSE reaches its figures at about three times the epsilon that it states.")
    return "\n".join(lines)


def _pair(rows: Rows) -> str:
    return " / ".join(f"{rows.mean(name)[0]:.3f}" for name in ("regret", "error"))


def _sentence(rows: Rows) -> str:
    last, literal = rows.where(alpha=_LATEST), list(_PUBLISHED)[1]
    return (
        f"At alpha 1/3, n = {rows.values('people')[0]:,} and epsilon 1, ours has regret over chance's / error of "
        f"{_pair(last.where(policy='central'))} with a curator, DP-ConSE as published "
        f"{_pair(last.where(policy=literal))}."
    )


def _compared(rows: Rows) -> list[Compared]:
    """Set ours with a curator beside the paper's, and the rates of its theorems with constant 1."""
    pairs = {"no privacy": (next(iter(_PUBLISHED)), "none"), "epsilon 1": (list(_PUBLISHED)[1], "central")}
    return [
        Compared(
            f"regret over chance's / error, {promise}, alpha {alpha:.3g}",
            f"rates {_pair(rows.where(alpha=alpha, policy=_BOUND))}",
            *(_pair(rows.where(alpha=alpha, policy=policy)) for policy in policies),
        )
        for promise, policies in pairs.items()
        for alpha in rows.values("alpha")
    ]


PARETO: Final = Reproduction(
    "paper-4-figure-1",
    "Paper 4, Figure 1: regret and the error of effects",
    _rows,
    _draw,
    verdict,
    _sentence,
    _compared,
    minutes=1,
)
