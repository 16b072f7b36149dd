"""Paper 3: regret of sparse linear bandits against the number of participants, with and without privacy."""

import math
from collections.abc import Iterator, Mapping
from itertools import pairwise, product
from typing import Any, Final

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from privateer_core.algorithms import parse_spec
from privateer_core.arrays import Array
from privateer_core.policies.policy import Arms
from privateer_core.spec.spec import Spec
from privateer_lab.environments import environment_for
from privateer_lab.render.pictures import COLOURS, create_panels
from privateer_lab.simulation.simulate import simulate_once
from privateer_papers.paper_3.lasso_bandits import Fliphat, LassoBandit, Problem, SparseBandit, ThresholdedLassoBandit
from privateer_papers.paper_3.privatelasso import LEAF_SIZE, GaussianTree, PrivateLasso
from privateer_papers.reproduction import OURS, Effort, Reproduction, Row, Rows, TableLine, mean_text

FIRST_POINT: Final = 2048
"""Number of participants at the first point of the figure, before which policies are nearly random."""
PUBLISHED: Final = "PrivateLASSO, published"
FLIPHAT: Final = "FLIPHAT"
UNPROTECTED: Final = ("LASSO bandit, no privacy", "thresholded LASSO bandit, no privacy")
PEER_CLASSES: Final[Mapping[str, type[SparseBandit]]] = {
    PUBLISHED: PrivateLasso,
    "PrivateLASSO, normal noise in the tree": GaussianTree,
    FLIPHAT: Fliphat,
    **dict(zip(UNPROTECTED, (LassoBandit, ThresholdedLassoBandit), strict=True)),
}
_MAX_DRAWN_NUMBERS: Final = 1 << 22
"""Largest number of context values drawn at a time."""
_UNIFORM_MEAN_SQUARE: Final = 1 / 3
"""Mean square of a uniform number in [-1, 1]."""
_HORIZON: Final = 1 << 17
_FEATURES: Final = (100, 1000)
_EPSILON: Final = 1.0
COEFFICIENTS: Final = (0.5, -0.5, 0.5)
_BARE: Final = "privateer, no privacy"
_RATE_LABEL: Final = "Theorem 2's rate with constant 1"
_PROMISES: Final[dict[str, Row]] = {
    OURS: {"model": "central", "epsilon": _EPSILON, "delta": 1e-6},
    _BARE: {"model": "none"},
}
_PEERS_TASK: Final = "peers"
_LINE_STYLES: Final = {_RATE_LABEL: ":", PUBLISHED: ".--", FLIPHAT: ".--"} | dict.fromkeys(UNPROTECTED, "x--")


_UNIFORM_LOSS: Final = 0.58
"""Regret of a uniform choice among five arms, with coefficients of a half and uniform numbers in [-1, 1]."""


def list_points(people: int) -> list[int]:
    """Return the numbers of participants at which regret is read: powers of two."""
    return [2**k for k in range(FIRST_POINT.bit_length() - 1, people.bit_length())]


def play_peers(spec: Any, seed: int, kinds: Mapping[str, type[SparseBandit]] = PEER_CLASSES) -> list[Row]:
    """Play peers with the same participants; return rows of their regret over a uniform choice's at `list_points`."""
    people = spec.experiment.horizon
    environment: Any = environment_for(spec, seed)
    peers = {name: kind(build_problem(spec, environment.coefficients), seed) for name, kind in kinds.items()}
    rng, regrets, uniform, rows = np.random.default_rng([seed, 3]), dict.fromkeys(peers, 0.0), 0.0, []
    for start, end in pairwise([0, *_update_times(people)]):
        for first, count in _split_blocks(start, end, spec.arm_count * spec.arm_features):
            environment_contexts = environment.contexts(first, count, rng)
            means, contexts = environment.means(environment_contexts), _scale_contexts(spec, environment_contexts)
            reward_seed, best = int(rng.integers(2**63)), means.max(axis=1)
            uniform += float((best - means.mean(axis=1)).sum())
            for name, peer in peers.items():
                arms = peer.choose(contexts)
                # Peers that play the same arm for a participant get the same reward.
                rewards = environment.rewards(environment_contexts, Arms(arms), np.random.default_rng(reward_seed))
                peer.learn(contexts[np.arange(count), arms], _clip_rewards(spec, rewards))
                regrets[name] += float((best - means[np.arange(count), arms]).sum())
        for peer in peers.values():
            peer.update_if_due()
        if end in list_points(people):
            facts = {"d": spec.arm_features, "people": end, "seed": seed, "uniform": uniform}
            rows += [{"policy": name, **facts, "regret": regrets[name] / uniform} for name in peers]
    return rows


def build_problem(spec: Any, coefficients: Array) -> Problem:
    """Build the public parameters of a spec's problem."""
    return Problem(
        dimension=spec.arm_features,
        sparsity=spec.algorithm.sparsity,
        reward=spec.reward.half_range,
        length=float(np.linalg.norm(coefficients)),
        variance=_UNIFORM_MEAN_SQUARE,
        people=spec.experiment.horizon,
        epsilon=spec.privacy.bound,
        delta=spec.privacy.delta,
    )


def _update_times(people: int) -> list[int]:
    """Return the times at which peers may refit: powers of two, 1.5 times powers of two, and ends of leaves."""
    early = {2**k for k in range(6, people.bit_length())} | {3 * 2**k for k in range(5, people.bit_length() - 1)}
    return sorted({*(t for t in early if t <= people), *range(LEAF_SIZE, people + 1, LEAF_SIZE), people})


def _split_blocks(start: int, end: int, size: int) -> list[tuple[int, int]]:
    step = max(1, _MAX_DRAWN_NUMBERS // size)
    return [(first, min(step, end - first)) for first in range(start, end, step)]


def _scale_contexts(spec: Any, raw: Array) -> NDArray[np.float32]:
    """Return contexts (n, arms, d) in [-1, 1]."""
    low, high = spec.context.low, spec.context.high
    scaled = (raw - low) * (2 / (high - low)) - 1
    return np.asarray(scaled.reshape(len(raw), spec.arm_count, -1), np.float32)


def _clip_rewards(spec: Spec, rewards: Array) -> Array:
    return np.clip(rewards - spec.reward.middle, -spec.reward.half_range, spec.reward.half_range)


def build_spec(features: int, people: int, privacy: Row, size: float = 1.0, round_size: int = 1000) -> Spec:
    """Build the spec: five arms of ``features`` features, with three coefficients of ``size`` times one half."""
    return parse_spec(
        {
            "experiment": {
                "name": "paper-3-regret",
                "arms": ["a", "b", "c", "d", "e"],
                "horizon": people,
                "round_size": round_size,
                "min_round_fraction": 1.0,
            },
            "context": {"features": features},
            "reward": {"low": -2.0, "high": 2.0},
            "privacy": privacy,
            "algorithm": {"name": "sparse", "sparsity": len(COEFFICIENTS)},
            "population": {"name": "needles", "coefficients": [size * coefficient for coefficient in COEFFICIENTS]},
        }
    )


def _rows(effort: Effort) -> Iterator[Row]:
    """Yield the rows of the theorem's rate, then those of ours and of all peers."""
    people, sizes = (1 << 12, (20,)) if effort.quick else (_HORIZON, _FEATURES)
    for features, end in product(sizes, list_points(people)):
        yield {"policy": _RATE_LABEL, "d": features, "people": end, "seed": 0, "regret": theorem_rate(end)}
    tasks = list(product((*_PROMISES, _PEERS_TASK), sizes, (people,), range(effort.seeds)))
    for rows in effort.run_in_order(run_curves, tasks):
        yield from rows


def run_curves(task: str, features: int, people: int, seed: int) -> list[Row]:
    """Return rows of regret over a uniform choice's at the points of a run: of ours, or of all peers."""
    if task == _PEERS_TASK:
        return play_peers(build_spec(features, people, _PROMISES[OURS]), seed)
    run = simulate_once(build_spec(features, people, _PROMISES[task]), seed)
    times, regrets, uniforms = np.array(
        [(0, 0.0, 0.0), *((n, regret, uniform) for n, regret, _, uniform in run.path)]
    ).T
    facts: Row = {"policy": task, "d": features, "seed": seed}
    # Within a round of ours the same policy decides for all, so that regret grows with its people.
    return [
        facts | {"people": end, "uniform": uniform, "regret": float(np.interp(end, times, regrets)) / uniform}
        for end in list_points(people)
        if (uniform := float(np.interp(end, times, uniforms)))
    ]


def theorem_rate(people: int) -> float:
    """Return s^1.5 (ln T)^3 / epsilon, without d, over the regret of a uniform choice, about half a reward a choice."""
    return math.sqrt(len(COEFFICIENTS)) ** 3 * math.log(people) ** 3 / _EPSILON / (_UNIFORM_LOSS * people)


def _draw(title: str, rows: Rows) -> Figure:
    """Draw regret by number of people, in a panel for each number of features."""
    sizes = rows.values("d")
    figure, axes = create_panels(len(sizes), title, height=4.4)
    for axis, size in zip(axes, sizes, strict=False):
        _draw_panel(axis, rows.where(d=size), size)
    axes[0].legend(fontsize=6)
    return figure


def _draw_panel(axis: Any, rows: Rows, size: int) -> None:
    """Draw the regret of each policy with its interval, for one number of features."""
    for colour, (policy,) in enumerate(rows.group_by("policy")):
        x, (means, widths) = rows.where(policy=policy).curve("people")
        line_colour = COLOURS[colour % len(COLOURS)]
        axis.plot(x, means, _LINE_STYLES.get(policy, ".-"), color=line_colour, label=policy)
        axis.fill_between(x, means - widths, means + widths, color=line_colour, alpha=0.1, linewidth=0)
    axis.set_xscale("log", base=2)
    axis.set(yscale="log", ylim=(1e-4, 3), xlabel="people", ylabel="regret over that of a uniform choice")
    axis.set_title(f"d = {size:,}", fontsize=9)


def describe_curves(rows: Rows) -> list[str]:
    """Describe each policy's relative regret at every point, beside the paper's claims."""
    texts = []
    for size in rows.values("d"):
        subset = rows.where(d=size)
        ends = subset.values("people")
        texts.append(f"Regret over uniform at d = {size:,}, epsilon {_EPSILON:g}, {', '.join(f'{n:,}' for n in ends)}:")
        for (policy,) in subset.group_by("policy"):
            figures = ", ".join(f"{mean:.3f}" for mean in subset.where(policy=policy).curve("people")[1][0])
            texts.append(f"  {policy}: {figures}.")
        texts.append(_compare_with_peers(subset, ends))
    return texts


def _compare_with_peers(rows: Rows, ends: list[int]) -> str:
    """Describe our regret beside FLIPHAT, published PrivateLASSO and ours without privacy."""
    curves = {name: rows.where(policy=name).curve("people")[1] for name in (OURS, FLIPHAT, PUBLISHED)}
    n_below = sum(own_regret < other for own_regret, other in zip(curves[OURS][0], curves[FLIPHAT][0], strict=True))
    mean, half_width = curves[PUBLISHED][:, -1]
    better = "better than" if mean + half_width < 1 else "no better than"
    ratio = curves[OURS][0, -1] / rows.where(policy=_BARE, people=ends[-1]).mean()[0]
    return (
        f"  Ours is below FLIPHAT at {n_below} of {len(ends)} points; published PrivateLASSO is {better} uniform "
        f"({mean:.2f} ± {half_width:.2f}); privacy multiplies our regret by {ratio:.1f}."
    )


def _sentence(rows: Rows) -> str:
    """Say what PrivateLASSO as published and ours lose in the end."""
    final = rows.where(people=rows.values("people")[-1])
    shares = [
        [final.where(d=size, policy=policy).mean()[0] for size in rows.values("d")] for policy in (PUBLISHED, OURS)
    ]
    return (
        f"PrivateLASSO as published loses {min(shares[0]):.2f} of what chance loses, ours {max(shares[1]):.3f} at "
        f"most, at {rows.values('people')[-1]:,} people and epsilon {_EPSILON:g}."
    )


def _compare(rows: Rows) -> list[TableLine]:
    """List final regret for each number of features, as published and ours."""
    final = rows.where(people=rows.values("people")[-1])
    return [
        TableLine(
            f"regret over chance's, d = {size:,}",
            "a rate alone",
            *(mean_text(final.where(d=size, policy=policy), digits=".3f") for policy in (PUBLISHED, OURS)),
        )
        for size in rows.values("d")
    ]


LASSO: Final = Reproduction(
    "paper-3-regret",
    "Paper 3: private sparse linear bandits",
    *(_rows, _draw, _sentence, _compare),
    minutes=10,
    remarks=describe_curves,
)
