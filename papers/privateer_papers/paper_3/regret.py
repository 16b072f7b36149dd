"""Paper 3: regret of private sparse linear bandits against people, ours and others', with privacy and without."""

import math
from collections.abc import Iterator, Mapping
from itertools import pairwise, product
from typing import Any, Final

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from privateer_core.algorithms import parse_spec
from privateer_core.policies.decisions import Arms
from privateer_core.spec.spec import Spec
from privateer_lab.environments import environment_for
from privateer_lab.pages.plots import COLOURS, panels
from privateer_lab.simulation.parallel import each
from privateer_lab.simulation.simulate import simulate_once
from privateer_papers.paper_3.lasso_bandits import Fliphat, LassoBandit, Peer, Problem, ThresholdedLassoBandit
from privateer_papers.paper_3.privatelasso import LEAF, GaussianTree, PrivateLasso
from privateer_papers.reproduction import OURS, Compared, Effort, Reproduction, Row, Rows, told

FIRST: Final = 2048
"""People at the first point of the figure: before, hardly anybody has learned anything."""
PUBLISHED: Final = "PrivateLASSO, published"
FLIPHAT: Final = "FLIPHAT"
UNPROTECTED: Final = ("LASSO bandit, no privacy", "thresholded LASSO bandit, no privacy")
PEERS: Final[Mapping[str, type[Peer]]] = {
    PUBLISHED: PrivateLasso,
    "PrivateLASSO, normal noise in the tree": GaussianTree,
    FLIPHAT: Fliphat,
    **dict(zip(UNPROTECTED, (LassoBandit, ThresholdedLassoBandit), strict=True)),
}
_NUMBERS: Final = 1 << 22
"""Numbers of contexts drawn at a time."""
_UNIFORM: Final = 1 / 3
"""Mean square of a number that is uniform in [-1, 1]."""
_PEOPLE: Final = 1 << 17
_FEATURES: Final = (100, 1000)
_EPSILON: Final = 1.0
COEFFICIENTS: Final = (0.5, -0.5, 0.5)
_BARE: Final = "privateer, no privacy"
_RATE: Final = "Theorem 2's rate with constant 1"
_OWN: Final[dict[str, Row]] = {OURS: {"model": "central", "epsilon": _EPSILON, "delta": 1e-6}, _BARE: {"model": "none"}}
_PEERS: Final = "peers"
_STYLES: Final = {_RATE: ":", PUBLISHED: ".--", FLIPHAT: ".--"} | dict.fromkeys(UNPROTECTED, "x--")


_A_TIME: Final = 0.58
"""What a uniform choice among five arms loses, with coefficients of a half and numbers uniform in [-1, 1]."""


def points(people: int) -> list[int]:
    """Return the numbers of people at which regret is read: powers of two."""
    return [2**k for k in range(FIRST.bit_length() - 1, people.bit_length())]


def played(spec: Any, seed: int, chosen: Mapping[str, type[Peer]] = PEERS) -> list[Row]:
    """Play all ``chosen`` with the same people; return rows of their regret over a uniform choice's at the `points`."""
    people = spec.experiment.horizon
    environment: Any = environment_for(spec, seed)
    peers = {name: made(problem_of(spec, environment.coefficients), seed) for name, made in chosen.items()}
    rng, lost, uniform, rows = np.random.default_rng([seed, 3]), dict.fromkeys(peers, 0.0), 0.0, []
    for start, end in pairwise([0, *_updates(people)]):
        for first, count in _blocks(start, end, spec.arm_count * spec.arm_features):
            raw = environment.contexts(first, count, rng)
            means, contexts = environment.means(raw), _scaled(spec, raw)
            luck, best = int(rng.integers(2**63)), means.max(axis=1)
            uniform += float((best - means.mean(axis=1)).sum())
            for name, peer in peers.items():
                arms = peer.choose(contexts)
                # Two that play the same arm for a person get the same reward.
                rewards = environment.rewards(raw, Arms(arms), np.random.default_rng(luck))
                peer.learn(contexts[np.arange(count), arms], _clipped(spec, rewards))
                lost[name] += float((best - means[np.arange(count), arms]).sum())
        for peer in peers.values():
            peer.update()
        if end in points(people):
            facts = {"d": spec.arm_features, "people": end, "seed": seed, "uniform": uniform}
            rows += [{"policy": name, **facts, "regret": lost[name] / uniform} for name in peers]
    return rows


def problem_of(spec: Any, coefficients: NDArray[np.float64]) -> Problem:
    """Return what everybody knows of a spec's problem."""
    return Problem(
        dimension=spec.arm_features,
        sparsity=spec.algorithm.sparsity,
        reward=spec.reward.half_range,
        length=float(np.linalg.norm(coefficients)),
        variance=_UNIFORM,
        people=spec.experiment.horizon,
        epsilon=spec.privacy.bound,
        delta=spec.privacy.delta,
    )


def _updates(people: int) -> list[int]:
    """Return when anybody may estimate anew: at powers of two and in their midst, and at the ends of leaves."""
    early = {2**k for k in range(6, people.bit_length())} | {3 * 2**k for k in range(5, people.bit_length() - 1)}
    return sorted({*(t for t in early if t <= people), *range(LEAF, people + 1, LEAF), people})


def _blocks(start: int, end: int, size: int) -> list[tuple[int, int]]:
    step = max(1, _NUMBERS // size)
    return [(first, min(step, end - first)) for first in range(start, end, step)]


def _scaled(spec: Any, raw: NDArray[np.float64]) -> NDArray[np.float32]:
    """Return contexts (n, arms, d) in [-1, 1]."""
    low, high = spec.context.low, spec.context.high
    scaled = (raw - low) * (2 / (high - low)) - 1
    return np.asarray(scaled.reshape(len(raw), spec.arm_count, -1), np.float32)


def _clipped(spec: Spec, rewards: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.clip(rewards - spec.reward.middle, -spec.reward.half_range, spec.reward.half_range)


def problem(features: int, people: int, privacy: Row, size: float = 1.0, round_size: int = 1000) -> Spec:
    """Return the problem: five arms of so many features, three of which matter, by ``size`` times one half each."""
    return parse_spec(
        {
            "experiment": {
                "name": "paper-3-regret",
                "arms": ["a", "b", "c", "d", "e"],
                "horizon": people,
                "round_size": round_size,
                "round_growth": 1.0,
            },
            "context": {"features": features},
            "reward": {"low": -2.0, "high": 2.0},
            "privacy": privacy,
            "algorithm": {"name": "sparse", "sparsity": len(COEFFICIENTS)},
            "population": {"name": "needles", "coefficients": [size * one for one in COEFFICIENTS]},
        }
    )


def _rows(effort: Effort) -> Iterator[Row]:
    people, sizes = (1 << 12, (20,)) if effort.quick else (_PEOPLE, _FEATURES)
    for features, end in product(sizes, points(people)):
        yield {"policy": _RATE, "d": features, "people": end, "seed": 0, "regret": rate(end)}
    tasks = list(product((*_OWN, _PEERS), sizes, (people,), range(effort.seeds)))
    for rows in each(curves, tasks, effort.jobs, effort.backend):
        yield from rows


def curves(which: str, features: int, people: int, seed: int) -> list[Row]:
    """Return regret over a uniform choice's at the `points` of one run: of ours, or of all others."""
    if which == _PEERS:
        return played(problem(features, people, _OWN[OURS]), seed)
    run = simulate_once(problem(features, people, _OWN[which]), seed)
    times, lost, uniform = np.array([(0, 0.0, 0.0), *((at, own, other) for at, own, _, other in run.path)]).T
    facts: Row = {"policy": which, "d": features, "seed": seed}
    # Within a round of ours the same policy decides for all, so that regret grows with its people.
    return [
        facts | {"people": end, "uniform": other, "regret": float(np.interp(end, times, lost)) / other}
        for end in points(people)
        if (other := float(np.interp(end, times, uniform)))
    ]


def rate(people: int) -> float:
    """Return s^1.5 (ln T)^3 / epsilon over the regret of a uniform choice, which loses about half a reward each time.

    d is not in it.
    """
    return math.sqrt(len(COEFFICIENTS)) ** 3 * math.log(people) ** 3 / _EPSILON / (_A_TIME * people)


def _draw(title: str, rows: Rows) -> Figure:
    sizes = rows.values("d")
    figure, axes = panels(len(sizes), title, height=4.4)
    for axis, size in zip(axes, sizes, strict=False):
        _panel(axis, rows.where(d=size), size)
    axes[0].legend(fontsize=6)
    return figure


def _panel(axis: Any, rows: Rows, size: int) -> None:
    for colour, (policy,) in enumerate(rows.by("policy")):
        at, (middle, half) = rows.where(policy=policy).curve("people")
        own = COLOURS[colour % len(COLOURS)]
        axis.plot(at, middle, _STYLES.get(policy, ".-"), color=own, label=policy)
        axis.fill_between(at, middle - half, middle + half, color=own, alpha=0.1, linewidth=0)
    axis.set_xscale("log", base=2)
    axis.set_yscale("log")
    axis.set_ylim(1e-4, 3)
    axis.set_title(f"d = {size:,}", fontsize=9)
    axis.set_xlabel("people")
    axis.set_ylabel("regret over that of a uniform choice")


def verdict(rows: Rows) -> str:
    """Say where each policy stands at every number of people, and what that shows of the paper's claims."""
    said = []
    for size in rows.values("d"):
        found = rows.where(d=size)
        ends = found.values("people")
        said.append(f"Regret over uniform at d = {size:,}, epsilon {_EPSILON:g}, {', '.join(f'{n:,}' for n in ends)}:")
        for (policy,) in found.by("policy"):
            figures = ", ".join(f"{one:.3f}" for one in found.where(policy=policy).curve("people")[1][0])
            said.append(f"  {policy}: {figures}.")
        said.append(_against(found, ends))
    return "\n".join(said)


def _against(rows: Rows, ends: list[int]) -> str:
    found = {name: rows.where(policy=name).curve("people")[1] for name in (OURS, FLIPHAT, PUBLISHED)}
    below = sum(own < other for own, other in zip(found[OURS][0], found[FLIPHAT][0], strict=True))
    middle, half = found[PUBLISHED][:, -1]
    better = "better than" if middle + half < 1 else "no better than"
    ratio = found[OURS][0, -1] / rows.where(policy=_BARE, people=ends[-1]).mean()[0]
    return (
        f"  Ours is below FLIPHAT at {below} of {len(ends)} points; published PrivateLASSO is {better} uniform "
        f"({middle:.2f} ± {half:.2f}); privacy multiplies our regret by {ratio:.1f}."
    )


def _sentence(rows: Rows) -> str:
    ends = rows.where(people=rows.values("people")[-1])
    shares = [
        [ends.where(d=size, policy=policy).mean()[0] for size in rows.values("d")] for policy in (PUBLISHED, OURS)
    ]
    return (
        f"PrivateLASSO as published loses {min(shares[0]):.2f} of what chance loses, ours {max(shares[1]):.3f} at "
        f"most, at {rows.values('people')[-1]:,} people and epsilon {_EPSILON:g}."
    )


def _compared(rows: Rows) -> list[Compared]:
    ends = rows.where(people=rows.values("people")[-1])
    return [
        Compared(
            f"regret over chance's, d = {size:,}",
            "a rate alone",
            *(told(ends.where(d=size, policy=policy), digits=".3f") for policy in (PUBLISHED, OURS)),
        )
        for size in rows.values("d")
    ]


LASSO: Final = Reproduction(
    "paper-3-regret",
    "Paper 3: private sparse linear bandits",
    _rows,
    _draw,
    verdict,
    _sentence,
    _compared,
    minutes=10,
)
