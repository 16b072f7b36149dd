"""A/A tests: trials without an effect, of rewards that are small beside their bounds, analyzed or served by rounds."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

import privateer_lab as lab
from privateer_core.algorithms import parse_spec
from privateer_core.algorithms.trial import TrialSpec
from privateer_core.answer import Answer
from privateer_core.policies.policy import Arms
from privateer_lab.simulation.scores import SeededNoise, encode_contexts
from privateer_lab.simulation.simulation import draw_coins
from privateer_server.algorithms.trial.group_sequential import critical_values, information_fractions
from privateer_server.rounds.schedule import Schedule

PEOPLE: Final = 6_000
SEGMENTS: Final = {"equal": (1 / 3, 1 / 3, 1 / 3), "90/5/5": (0.9, 0.05, 0.05)}
PROMISES: Final[dict[str, dict[str, Any]]] = {
    "none": {"model": "none"},
    "central": {"model": "central", "epsilon": 4.0},
    "shuffle": {"model": "shuffle", "epsilon": 4.0, "delta": 1e-6, "min_batch": 1_000},
}
_NAMES: Final = ("x", "y", "z")


@dataclass(frozen=True)
class Outcomes:
    """Effects among all participants, in many A/A tests.

    Attributes
    ----------
    tests, with_interval, decided
        How many there are, have an interval, and reject the null hypothesis.
    unresolved
        How many recommend narrower bounds.
    any_segment
        How many reject the null hypothesis in any segment.
    width
        Widths of intervals over Welch's, on average; intervals of several looks are wider by what looks cost.
    """

    tests: int
    with_interval: int
    decided: int
    unresolved: int
    any_segment: int
    width: float


@dataclass(frozen=True)
class _People:
    segments: NDArray[np.int64]
    rewards: NDArray[np.float64]


def small_rewards(deviation: float, shares: tuple[float, ...], count: int, rng: np.random.Generator) -> _People:
    """Draw rewards in [0, 1] of this standard deviation, and twice this mean, whatever the segment."""
    rewards = np.minimum(rng.gamma(4.0, deviation / 2, count), 1.0)
    return _People(rng.choice(len(shares), count, p=shares), rewards)


def play_analyzed(promise: str, deviation: float, segments: str, tests: int, seed: int) -> Outcomes:
    """Analyze tests of rows that are in one place."""
    rng, shares, private = np.random.default_rng(seed), SEGMENTS[segments], promise != "none"
    trust: dict[str, Any] = {"epsilon": PROMISES[promise]["epsilon"], "shares": {"a": 0.5, "b": 0.5}} if private else {}

    def play_tests() -> Iterator[tuple[Answer, float]]:
        for _ in range(tests):
            people, arms = small_rewards(deviation, shares, PEOPLE, rng), rng.integers(0, 2, PEOPLE)
            rows = {
                "arm": np.array(["a", "b"])[arms],
                "segment": np.array(_NAMES)[people.segments],
                "reward": people.rewards,
            }
            analysis = lab.analyze(rows, bounds=(0.0, 1.0), segments={"segment": _NAMES}, **trust)
            yield analysis.answer, _welch(people.rewards, arms)

    return _sum_outcomes(play_tests())


def spec_of(promise: str) -> TrialSpec:
    """Return a trial of two looks."""
    spec = parse_spec(
        {
            "experiment": {"name": "aa", "arms": ["a", "b"], "horizon": PEOPLE, "round_size": PEOPLE // 3},
            "context": {"features": {"segment": {"levels": list(_NAMES)}}},
            "segments": {"features": ["segment"]},
            "reward": {"kind": "numeric", "low": 0.0, "high": 1.0},
            "privacy": PROMISES[promise],
            "algorithm": {"name": "trial", "allocation": "fixed", "looks": 2},
        }
    )
    assert isinstance(spec, TrialSpec)
    return spec


def play_served(promise: str, deviation: float, segments: str, tests: int, seed: int) -> Outcomes:
    """Play tests round by round, from devices' records to a server's answer."""
    spec, rng, shares = spec_of(promise), np.random.default_rng(seed), SEGMENTS[segments]
    schedule = Schedule(spec)

    def play_tests() -> Iterator[tuple[Answer, float]]:
        for _ in range(tests):
            rewards, arms, ends = [], [], [0]
            step = schedule.open(int(rng.integers(2**63)))
            while step.batch_size:
                people = small_rewards(deviation, shares, step.batch_size, rng)
                release, chosen = _release(step.policy, spec, people, rng)
                rewards.append(people.rewards)
                arms.append(chosen)
                ends.append(ends[-1] + step.batch_size)
                step = schedule.advance(step, release, int(rng.integers(2**63)))
            looks = float(critical_values(information_fractions(np.array(ends[1:], float), PEOPLE), 0.05)[-1]) / 1.96
            yield schedule.answer(step), looks * _welch(np.concatenate(rewards), np.concatenate(arms))

    return _sum_outcomes(play_tests())


def _release(policy: Any, spec: TrialSpec, people: _People, rng: np.random.Generator) -> tuple[Any, NDArray[np.int64]]:
    contexts = encode_contexts(people.segments[:, None].astype(float), spec)
    coins, noise, mechanism = draw_coins(rng, len(contexts)), SeededNoise(rng), policy.terms.mechanism
    arms = policy.decide(contexts, coins).arms
    report_coins = draw_coins(rng, len(contexts)) if policy.has_fresh_coins else coins
    contributions = policy.contribute(contexts, report_coins, Arms(arms), spec.reward.scaled_all(people.rewards))
    records = mechanism.parse(mechanism.randomize(contributions, noise).tobytes())
    return mechanism.release(mechanism.add(mechanism.empty(), records), noise), arms


def _welch(rewards: NDArray[np.float64], arms: NDArray[np.int64]) -> float:
    """Return the width of the plain interval."""
    return float(2 * 1.96 * np.sqrt(sum(rewards[arms == arm].var() / (arms == arm).sum() for arm in (0, 1))))


def _sum_outcomes(played: Iterator[tuple[Answer, float]]) -> Outcomes:
    with_interval = decided = unresolved = any_segment = tests = 0
    widths, plain = [], []
    for answer, welch in played:
        [whole] = [effect for effect in answer.effects if effect.group is None]
        tests += 1
        decided += whole.is_decided
        unresolved += "bounds" in whole.reason + whole.remark
        any_segment += any(effect.is_decided for effect in answer.effects if effect.group is not None)
        if whole.low is not None and whole.high is not None:
            with_interval += 1
            widths.append(whole.high - whole.low)
            plain.append(welch)
            assert whole.high > whole.low, "an interval of width 0"
    width = float(np.mean(widths) / np.mean(plain)) if widths else float("nan")
    return Outcomes(tests, with_interval, decided, unresolved, any_segment, width)
