"""Releases of one round, drawn box by box and person by person."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from privateer_lab.simulation.simulate import Simulation


def numbers(release: Any) -> NDArray[np.float64]:
    """Everything random in a release, with sums over keys that show dependence between keys."""
    arrays = [np.asarray(value, float) for value in vars(release).values() if isinstance(value, np.ndarray)]
    joint = [np.array([a.sum(), (a.sum(axis=0) ** 2).sum()]) for a in arrays]
    return np.concatenate([a.ravel() for a in arrays] + joint)


def advanced(run: Simulation, rounds: int = 3) -> Simulation:
    """The run after some rounds."""
    for _ in range(rounds):
        run.close_round()
    return run


def both_ways(run: Simulation, times: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Numbers of releases of the open round, so many drawn by boxes and so many person by person."""
    step, start = run.step, run.people
    policy, mechanism = step.policy, step.policy.terms.mechanism

    def by_boxes() -> NDArray[np.float64]:
        run.people = start
        assert run.cells is not None
        return numbers(mechanism.simulate_counts(*run.play_boxes(policy, step.batch, run.cells), run.rng))  # type: ignore[arg-type]

    def one_by_one() -> NDArray[np.float64]:
        run.people = start
        return numbers(mechanism.simulate(run.play(policy, step.batch, run.rng), run.rng))

    return np.array([by_boxes() for _ in range(times)]), np.array([one_by_one() for _ in range(times)])
