"""Confidence intervals of an average effect on the same participants: ours and peers, with and without privacy."""

from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any, Final

import numpy as np
from matplotlib.figure import Figure

from privateer_core.arrays import Ints
from privateer_lab.render.pictures import create_panels
from privateer_papers.reproduction import Effort, Reproduction, Row, Rows, TableLine, draw_lines
from privateer_server.algorithms.trial.evidence.epochs import Epoch, TrialDesign
from privateer_server.algorithms.trial.evidence.trial_evidence import TrialEvidence
from privateer_server.algorithms.trial.treatment_effects import compute_effects

_HORIZON: Final = 100_000
_N_LOOKS: Final = 12
_EPSILON: Final = 1.0
_ALPHA: Final = 0.05
_ARM_MEANS: Final = (0.30, 0.33)
_REPEATED: Final = "local 1: repeated"
_PEER: Final = "local 1: Waudby-Smith, Wu, Ramdas"
_TUNED_PEER: Final = "local 1: the same, tuned to the plan"
_BARE: Final = "none: repeated"
_MIXTURE: Final = "none: normal mixture"
_LIBRARY: Final = "none: statsmodels, Bonferroni over looks"
_RULES: Final = (_REPEATED, _TUNED_PEER, _PEER, _BARE, _MIXTURE, _LIBRARY)


def compute_intervals(seed: int) -> list[Row]:
    """Return each rule's estimate and half width at each look of a trial with half the participants treated."""
    rng = np.random.default_rng([seed, 6])
    arms = rng.integers(0, 2, _HORIZON)
    bits = (rng.random(_HORIZON) < np.array(_ARM_MEANS)[arms]).astype(np.int64)
    ends = np.rint(_HORIZON * 1.5 ** np.arange(1.0 - _N_LOOKS, 1.0)).astype(int)
    truth = float(np.tanh(_EPSILON / 2))
    by_rule = {
        _REPEATED: _our_intervals(arms, _flip_bits(bits, truth, rng), ends, truth),
        **dict(zip((_PEER, _TUNED_PEER), _peer_intervals(arms, bits, ends, truth, rng), strict=True)),
        _BARE: _our_intervals(arms, bits, ends, 1.0),
        _MIXTURE: _mixture_intervals(arms, bits, ends),
    }
    if find_spec("statsmodels"):
        by_rule[_LIBRARY] = _library_intervals(arms, bits, ends)
    return [
        {"rule": rule, "people": int(end), "seed": seed, "estimate": estimate, "half": half_width}
        for rule, pairs in by_rule.items()
        for end, (estimate, half_width) in zip(ends, pairs, strict=True)
    ]


def _flip_bits(bits: Ints, truth: float, rng: np.random.Generator) -> Ints:
    """Randomize bits by randomized response."""
    return np.where(rng.random(len(bits)) < truth, bits, rng.integers(0, 2, len(bits)))


def _our_intervals(arms: Ints, bits: Ints, ends: Ints, truth: float) -> list[tuple[float, float]]:
    """Return repeated intervals; the arm is public, and only the reward is randomized."""
    design = TrialDesign(_ALPHA, _HORIZON, np.array([0.5, 0.5]), np.ones(1), counted=truth == 1)
    evidence, intervals = TrialEvidence.begin(design), []
    for start, end in zip((0, *ends[:-1]), ends, strict=True):
        hits = np.bincount(arms[start:end], minlength=2)[None].astype(np.float64)
        positive = np.bincount(arms[start:end], bits[start:end].astype(np.float64), 2)[None].astype(np.float64)
        epoch = Epoch(float(end - start), positive, hits, truth, 0.0, 0.0, np.full((1, 2), 0.5))
        evidence = evidence.add(epoch)
        limits = compute_effects(evidence)
        intervals.append((float(limits.estimate[0, 0]), float(limits.high[0, 0] - limits.low[0, 0]) / 2))
    return intervals


def _peer_intervals(arms: Ints, bits: Ints, ends: Ints, truth: float, rng: np.random.Generator) -> tuple[Any, Any]:
    """Return the intervals of Waudby-Smith, Wu and Ramdas (2023), from randomized outcomes of range 4.

    With the weights that they recommend without a plan, and with the weight that is best at the plan's end.
    """
    outcome = (2 * bits * (2 * arms - 1) + 2) / 4
    reported_bits = _flip_bits((rng.random(_HORIZON) < outcome).astype(np.int64), truth, rng)
    number, level = np.arange(1, _HORIZON + 1), np.log(2 / _ALPHA)
    recommended_weights = np.minimum(1.0, np.sqrt(8 * level / (number * np.log(number + 1))))
    planned_weights = np.full(_HORIZON, np.sqrt(8 * level / _HORIZON))
    intervals = []
    for weights in (recommended_weights, planned_weights):
        total_weights, squared_weights = np.cumsum(weights)[ends - 1], np.cumsum(np.square(weights))[ends - 1]
        means = np.cumsum(weights * (reported_bits - (1 - truth) / 2))[ends - 1] / (truth * total_weights)
        widths = (level + squared_weights / 8) / (truth * total_weights)
        intervals.append(list(zip((4 * means - 2).tolist(), (4 * widths).tolist(), strict=True)))
    return intervals[0], intervals[1]


def _mixture_intervals(arms: Ints, bits: Ints, ends: Ints) -> list[tuple[float, float]]:
    """Return intervals of the two-sample normal mixture (Robbins 1970; Howard et al. 2021), without privacy."""
    intervals = []
    for end in ends:
        n_plays = np.bincount(arms[:end], minlength=2)
        rates = np.bincount(arms[:end], bits[:end], 2) / n_plays
        variance = end * float((rates * (1 - rates) / n_plays).sum())
        tuning = (-2 * np.log(_ALPHA) + np.log(-2 * np.log(_ALPHA) + 1)) / _HORIZON
        variance_factor = (end * tuning + 1) / (end**2 * tuning)
        half_width = np.sqrt(variance * variance_factor * np.log((end * tuning + 1) / _ALPHA**2))
        intervals.append((float(rates[1] - rates[0]), float(half_width)))
    return intervals


def _library_intervals(arms: Ints, bits: Ints, ends: Ints) -> list[tuple[float, float]]:
    """Return statsmodels' intervals for two proportions (Agresti and Caffo), with Bonferroni's correction for looks."""
    from statsmodels.stats.proportion import confint_proportions_2indep

    intervals = []
    for end in ends:
        n_plays, hits = np.bincount(arms[:end], minlength=2), np.bincount(arms[:end], bits[:end], 2)
        low, high = confint_proportions_2indep(hits[1], n_plays[1], hits[0], n_plays[0], alpha=_ALPHA / len(ends))
        intervals.append((float(low + high) / 2, float(high - low) / 2))
    return intervals


def _rows(effort: Effort) -> Iterator[Row]:
    for rows in effort.play(compute_intervals, [()]):
        yield from rows


def _draw(title: str, rows: Rows) -> Figure:
    """Draw the half-width of intervals by number of people for each rule."""
    figure, axes = create_panels(1, title, height=4.4)
    draw_lines(axes[0], _half_width_rows(rows), "people", [({"rule": rule}, rule) for rule in _RULES])
    axes[0].set(xscale="log", yscale="log", xlabel="people", ylabel="half-width of the average effect")
    axes[0].legend(fontsize=6)
    return figure


def _half_width_rows(rows: Rows) -> Rows:
    """Return rows with a finite interval, with its half width as the drawn figure."""
    return Rows({**row, "regret": row["half"]} for row in rows if np.isfinite(row["half"]))


def describe_misses(rows: Rows) -> list[str]:
    """Describe the final half width of each rule, and in how many trials it misses at some look."""
    effect = _ARM_MEANS[1] - _ARM_MEANS[0]
    texts = [f"Half-widths are at {_HORIZON:,} people, level .95, of an effect of {effect:.2f}."]
    for rule in _RULES:
        if subset := rows.where(rule=rule):  # else its library is not installed
            missed = {row["seed"] for row in subset if abs(row["estimate"] - effect) > row["half"]}
            count = f"{len(missed)} of {len(subset.values('seed'))} trials missed at some look"
            texts.append(f"{rule}: {_final_width(rows, rule):.4f} ({count}).")
    return texts


def _final_width(rows: Rows, rule: str) -> float:
    return rows.where(rule=rule, people=_HORIZON).mean("half")[0]


def _sentence(rows: Rows) -> str:
    """Say how wide our repeated intervals are beside those of a peer."""
    return (
        f"Our repeated intervals at local epsilon {_EPSILON:g} have "
        f"{_final_width(rows, _REPEATED) / _final_width(rows, _PEER):.2f} "
        "times the width of those of Waudby-Smith, Wu and Ramdas, without a plan."
    )


def _compare(rows: Rows) -> list[TableLine]:
    """Return lines that compare rules with equal plans; the paper's own intervals are of bins, and not sequential."""
    pairs = {"local 1, no plan": (_PEER, _REPEATED), "local 1, a plan": (_TUNED_PEER, _REPEATED)}
    pairs["none"] = (_MIXTURE, _BARE)
    return [
        TableLine(f"half-width, {label}", "", f"{_final_width(rows, peer):.4f}", f"{_final_width(rows, rule):.4f}")
        for label, (peer, rule) in pairs.items()
    ]


PEERS: Final = Reproduction(
    "paper-4-intervals",
    "Paper 4: sequential intervals of an A/B test",
    *(_rows, _draw, _sentence, _compare),
    minutes=1,
    remarks=describe_misses,
)
