"""Paper 4, Figure 1: the frontier of regret and the error of conditional average treatment effects."""

from collections.abc import Iterator
from typing import Any, Final

from matplotlib.figure import Figure

from privateer_lab.pages.plots import COLOURS, panels
from privateer_lab.simulation.parallel import each
from privateer_papers.paper_4.frontier import MODELS, bound, matched, published
from privateer_papers.reproduction import Effort, Reproduction, Row, Rows

_ALPHAS: Final = (0.0, 1 / 12, 1 / 6, 1 / 4, 1 / 3)
_EPSILON: Final = 1.0
_PUBLISHED: Final = {
    "ConSE, published": (None, "algorithm"),
    "DP-ConSE, published": (_EPSILON, "algorithm"),
    "DP-ConSE, published, the proof's width": (_EPSILON, "appendix"),
}
_BOUND: Final = "Theorems 3.2 and 4.5 with constant 1"
_LATEST: Final = _ALPHAS[-1]


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
        regret, error = matched(name, people, alpha, _EPSILON, seed)
    else:
        regret, error = published(people, alpha, *_PUBLISHED[name], seed)
    return {"policy": name, "alpha": alpha, "people": people, "seed": seed, "regret": regret, "error": error}


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


PARETO: Final = Reproduction(
    "paper-4-figure-1", "Paper 4, Figure 1: regret and the error of effects", _rows, _draw, verdict
)
