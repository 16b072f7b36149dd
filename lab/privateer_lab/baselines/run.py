"""References through an experiment's rounds: one pass over the people of a seed for all of them."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from privateer.experiment import Spec, next_turn
from privateer_lab.baselines import BASELINES
from privateer_lab.baselines.people import GROUP, People
from privateer_lab.interval import interval
from privateer_lab.parallel import Backend, each


@dataclass(frozen=True)
class BaselineRun:
    """One seed's outcome of one reference.

    Attributes
    ----------
    regret
        Sum, over people, of expected reward lost against the best arm.
    reward
        Mean reward received by a person, in the reward's own units.
    """

    name: str
    seed: int
    regret: float
    reward: float


def play_once(spec: Spec, names: list[str], seed: int) -> list[BaselineRun]:
    """All these references' outcomes with the people of one seed, from the first round to the horizon.

    Parameters
    ----------
    spec
        With a ``population``.
    names
        As `privateer_lab.baselines.chosen` gives them.
    seed
        Of people, rewards and what references draw: the same seed gives the same outcomes, whatever the other names.
    """
    people = People(spec, seed)
    playing = {name: BASELINES[name](spec, seed) for name in names}
    regret, received = dict.fromkeys(names, 0.0), dict.fromkeys(names, 0.0)
    for batch, size in _rounds(spec):
        for reference in playing.values():
            reference.open(batch)
        for start in range(0, size, GROUP):
            visitors = people.next(min(GROUP, size - start))
            best = visitors.means.max(axis=1)
            for name, reference in playing.items():
                arms = reference.choose(visitors)
                rewards = people.rewards(visitors, arms)
                regret[name] += float((best - np.take_along_axis(visitors.means, arms[:, None], axis=1)[:, 0]).sum())
                received[name] += float(rewards.sum())
                if batch:
                    reference.learn(visitors, arms, people.values(rewards))
        for reference in playing.values() if batch else ():
            reference.close()
    horizon = spec.experiment.horizon
    return [BaselineRun(name, seed, regret[name], received[name] / horizon) for name in names]


def _rounds(spec: Spec) -> Iterator[tuple[int, int]]:
    """Reports and people of every round; people who are left in the end report nothing."""
    seen, turn = 0, next_turn(spec, None)
    while turn.batch:
        if not turn.cohort:
            yield turn.batch, turn.batch
            seen += turn.batch
        turn = next_turn(spec, turn)
    if seen < spec.experiment.horizon:
        yield 0, spec.experiment.horizon - seen


def play(
    spec: Spec, names: list[str], seeds: int, jobs: int | None = None, backend: Backend = "processes"
) -> Iterator[list[BaselineRun]]:
    """Outcomes of seeds 0..seeds-1 as they finish, on ``jobs`` processes (default: one a core)."""
    return each(play_once, [(spec, names, seed) for seed in range(seeds)], jobs, backend)


def summaries(outcomes: list[list[BaselineRun]]) -> dict[str, dict[str, Any]]:
    """Figures of each reference over seeds; regret intervals are 95 % for the mean (`interval`)."""
    found: dict[str, dict[str, Any]] = {}
    for name in (run.name for run in outcomes[0]):
        runs = [run for some in outcomes for run in some if run.name == name]
        regret = np.array([run.regret for run in runs])
        found[name] = {
            "regret_mean": float(regret.mean()),
            "regret_ci95": interval(regret),
            "regret_worst": float(regret.max()),
            "reward_mean": float(np.mean([run.reward for run in runs])),
            "leaks": BASELINES[name].leaks,
        }
    return found
