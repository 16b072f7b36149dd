"""The mean reward that an experiment earns, over whole simulated runs."""

from collections.abc import Iterable, Mapping
from typing import Any

from privateer_core.algorithms import parse_spec
from privateer_lab.simulation.simulation import Simulation


def mean_reward(tables: Mapping[str, Any], seeds: Iterable[int]) -> float:
    """Return the mean reward of a person, in the reward's unit, averaged over runs of a spec with these seeds."""
    rewards = []
    for seed in seeds:
        simulation = Simulation(parse_spec(tables), seed)
        while simulation.step.batch_size:
            simulation.close_round()
        simulation.finish()
        rewards.append(simulation.outcome().reward)
    return sum(rewards) / len(rewards)
