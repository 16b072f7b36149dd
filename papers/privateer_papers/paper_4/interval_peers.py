"""Intervals of an average effect on the same people: ours and those of others, with privacy and without."""

from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any, Final

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from privateer_lab.pages.plots import panels
from privateer_lab.simulation.parallel import each
from privateer_papers.reproduction import Compared, Effort, Reproduction, Row, Rows, lines
from privateer_server.algorithms.trial.confidence_sequence import ConfidenceSequence
from privateer_server.algorithms.trial.evidence.epochs import Epoch, TrialDesign
from privateer_server.algorithms.trial.evidence.trial_evidence import TrialEvidence
from privateer_server.algorithms.trial.treatment_effects import effects

Array = NDArray[np.float64]

_PEOPLE: Final = 100_000
_LOOKS: Final = 12
_EPSILON: Final = 1.0
_ALPHA: Final = 0.05
_MEANS: Final = (0.30, 0.33)
_OURS: Final = "local 1: repeated"
_STRICT: Final = "local 1: one line"
_THEIRS: Final = "local 1: Waudby-Smith, Wu, Ramdas"
_TUNED: Final = "local 1: the same, tuned to the plan"
_BARE: Final = "none: repeated"
_MIXTURE: Final = "none: normal mixture"
_LIBRARY: Final = "none: statsmodels, Bonferroni over looks"
_RULES: Final = (_OURS, _STRICT, _TUNED, _THEIRS, _BARE, _MIXTURE, _LIBRARY)


def intervals(seed: int) -> list[Row]:
    """Return each rule's estimate and half-width after each look at one trial; half the people are treated."""
    rng = np.random.default_rng([seed, 6])
    arms = rng.integers(0, 2, _PEOPLE)
    bits = (rng.random(_PEOPLE) < np.array(_MEANS)[arms]).astype(np.int64)
    ends = np.rint(_PEOPLE * 1.5 ** np.arange(1.0 - _LOOKS, 1.0)).astype(int)
    kept = float(np.tanh(_EPSILON / 2))
    found = {
        **dict(zip((_OURS, _STRICT), _ours(arms, _flipped(bits, kept, rng), ends, kept), strict=True)),
        **dict(zip((_THEIRS, _TUNED), _theirs(arms, bits, ends, kept, rng), strict=True)),
        _BARE: _ours(arms, bits, ends, 1.0)[0],
        _MIXTURE: _mixture(arms, bits, ends),
    }
    if find_spec("statsmodels"):
        found[_LIBRARY] = _library(arms, bits, ends)
    return [
        {"rule": rule, "people": int(end), "seed": seed, "estimate": estimate, "half": half}
        for rule, pairs in found.items()
        for end, (estimate, half) in zip(ends, pairs, strict=True)
    ]


def _flipped(bits: NDArray[np.int64], kept: float, rng: np.random.Generator) -> NDArray[np.int64]:
    """Randomize bits by randomized response."""
    return np.where(rng.random(len(bits)) < kept, bits, rng.integers(0, 2, len(bits)))


def _ours(arms: NDArray[np.int64], bits: NDArray[np.int64], ends: NDArray[np.int64], kept: float) -> tuple[Any, Any]:
    """Return repeated intervals, and those of the line: the arm is public, and only the reward is randomized."""
    design = TrialDesign(_ALPHA, _PEOPLE, np.array([0.5, 0.5]), np.ones(1), counted=kept == 1)
    evidence, line, repeated, strict = TrialEvidence.begin(design), ConfidenceSequence.begin(design), [], []
    for start, end in zip((0, *ends[:-1]), ends, strict=True):
        hits = np.bincount(arms[start:end], minlength=2)[None].astype(np.float64)
        positive = np.bincount(arms[start:end], bits[start:end].astype(np.float64), 2)[None].astype(np.float64)
        epoch = Epoch(float(end - start), positive, hits, kept, 0.0, 0.0, np.full((1, 2), 0.5))
        evidence, line = evidence.add(epoch), line.add(epoch)
        one, other = effects(evidence), line.effect()
        repeated.append((float(one.estimate[0, 0]), float(one.high[0, 0] - one.low[0, 0]) / 2))
        strict.append((float(other.estimate[0, 0]), float(other.high[0, 0] - other.low[0, 0]) / 2))
    return repeated, strict


def _theirs(
    arms: NDArray[np.int64], bits: NDArray[np.int64], ends: NDArray[np.int64], kept: float, rng: np.random.Generator
) -> tuple[Any, Any]:
    """Waudby-Smith, Wu and Ramdas (2023): the inverse-propensity outcome, of range 4, is rounded and randomized.

    With weights that they recommend where nothing is planned, and with the one weight that is best at the plan's end.
    """
    outcome = (2 * bits * (2 * arms - 1) + 2) / 4
    told = _flipped((rng.random(_PEOPLE) < outcome).astype(np.int64), kept, rng)
    number, level = np.arange(1, _PEOPLE + 1), np.log(2 / _ALPHA)
    free = np.minimum(1.0, np.sqrt(8 * level / (number * np.log(number + 1))))
    tuned = np.full(_PEOPLE, np.sqrt(8 * level / _PEOPLE))
    found = []
    for weights in (free, tuned):
        total, squares = np.cumsum(weights)[ends - 1], np.cumsum(np.square(weights))[ends - 1]
        middle = np.cumsum(weights * (told - (1 - kept) / 2))[ends - 1] / (kept * total)
        half = (level + squares / 8) / (kept * total)
        found.append(list(zip((4 * middle - 2).tolist(), (4 * half).tolist(), strict=True)))
    return found[0], found[1]


def _mixture(arms: NDArray[np.int64], bits: NDArray[np.int64], ends: NDArray[np.int64]) -> list[tuple[float, float]]:
    """Two-sample normal mixture (Robbins 1970; Howard et al. 2021), as sequential A/B tests without privacy use it."""
    found = []
    for end in ends:
        played = np.bincount(arms[:end], minlength=2)
        rates = np.bincount(arms[:end], bits[:end], 2) / played
        variance = end * float((rates * (1 - rates) / played).sum())
        tuning = (-2 * np.log(_ALPHA) + np.log(-2 * np.log(_ALPHA) + 1)) / _PEOPLE
        spread = (end * tuning + 1) / (end**2 * tuning)
        half = np.sqrt(variance * spread * np.log((end * tuning + 1) / _ALPHA**2))
        found.append((float(rates[1] - rates[0]), float(half)))
    return found


def _library(arms: NDArray[np.int64], bits: NDArray[np.int64], ends: NDArray[np.int64]) -> list[tuple[float, float]]:
    """Return statsmodels' intervals for two proportions (Agresti and Caffo), each at a level that all looks share."""
    from statsmodels.stats.proportion import confint_proportions_2indep

    found = []
    for end in ends:
        played, hits = np.bincount(arms[:end], minlength=2), np.bincount(arms[:end], bits[:end], 2)
        low, high = confint_proportions_2indep(hits[1], played[1], hits[0], played[0], alpha=_ALPHA / len(ends))
        found.append((float(low + high) / 2, float(high - low) / 2))
    return found


def _rows(effort: Effort) -> Iterator[Row]:
    for rows in each(intervals, [(seed,) for seed in range(effort.seeds)], effort.jobs, effort.backend):
        yield from rows


def _draw(title: str, rows: Rows) -> Figure:
    figure, axes = panels(1, title, height=4.4)
    lines(axes[0], _as_figure(rows), "people", [({"rule": rule}, rule) for rule in _RULES])
    axes[0].set_xscale("log")
    axes[0].set_yscale("log")
    axes[0].set_xlabel("people")
    axes[0].set_ylabel("half-width of the average effect")
    axes[0].legend(fontsize=6)
    return figure


def _as_figure(rows: Rows) -> Rows:
    """Return rows that have an interval, with its half-width as the figure that is drawn."""
    return Rows({**row, "regret": row["half"]} for row in rows if np.isfinite(row["half"]))


def verdict(rows: Rows) -> str:
    """Say how wide each interval is at the end, and how often it misses at any look."""
    said, effect = [], _MEANS[1] - _MEANS[0]
    for rule in _RULES:
        found = rows.where(rule=rule)
        if not found:  # its library is not installed
            continue
        width = found.where(people=_PEOPLE).mean("half")[0]
        wrong = {row["seed"] for row in found if abs(row["estimate"] - effect) > row["half"]}
        said.append(f"{rule}: {width:.4f} ({len(wrong)} of {len(found.values('seed'))} trials missed at some look).")
    return f"Half-widths at {_PEOPLE:,} people, level .95, of an effect of {effect:.2f}:\n" + "\n".join(said)


def _width(rows: Rows, rule: str) -> float:
    return rows.where(rule=rule, people=_PEOPLE).mean("half")[0]


def _sentence(rows: Rows) -> str:
    return (
        f"Our repeated intervals at local epsilon {_EPSILON:g} have {_width(rows, _OURS) / _width(rows, _THEIRS):.2f} "
        "times the width of those of Waudby-Smith, Wu and Ramdas, without a plan."
    )


def _compared(rows: Rows) -> list[Compared]:
    """Set rules beside each other that know the same; the paper's own intervals are of bins, and not sequential."""
    pairs = (("local 1, no plan", _THEIRS, _OURS), ("local 1, a plan", _TUNED, _STRICT), ("none", _MIXTURE, _BARE))
    return [
        Compared(f"half-width, {what}", "", f"{_width(rows, other):.4f}", f"{_width(rows, own):.4f}")
        for what, other, own in pairs
    ]


PEERS: Final = Reproduction(
    "paper-4-intervals",
    "Paper 4: sequential intervals of an A/B test",
    _rows,
    _draw,
    verdict,
    _sentence,
    _compared,
    minutes=1,
)
