"""Phased experiments in one process: the same policies, mechanisms and learners, and simulated people."""

import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from privateer.algorithms.phased import PhasedPolicy
from privateer.mechanisms.vector_terms import VectorTerms
from privateer.phased import PhasedSpec
from privateer_lab.environments.linear import Linear
from privateer_lab.interval import interval
from privateer_lab.parallel import Backend, each
from privateer_lab.phased.record import record, warnings
from privateer_server.algorithms.phased import PhasedLearner


@dataclass(frozen=True)
class Phase:
    """What one phase did.

    Attributes
    ----------
    rounds, regret
        Played, and lost by them against the best action.
    clients, messages, bits
        People asked, and what they all sent: messages, and bits as paper 5 counts them.
    bytes
        What they sent, before sealing.
    active
        Actions left after it.
    """

    rounds: int
    regret: float
    clients: int
    messages: int
    bits: int
    bytes: int
    active: int


@dataclass(frozen=True)
class Run:
    """One seed's outcome.

    Attributes
    ----------
    regret, uniform_regret
        Sum, over rounds, of what was lost against the best action: by the learner, and by uniformly random actions.
    best_kept
        Whether the best action was never dropped.
    clipped
        At least this share of people's averages was clipped, as `PhasedLearner` tells from releases.
    phases
        One by one; the last one asks nobody.
    """

    seed: int
    regret: float
    uniform_regret: float
    best_kept: bool
    clipped: float
    phases: tuple[Phase, ...]


def simulate_once(spec: PhasedSpec, seed: int) -> tuple[Run, tuple[VectorTerms, ...]]:
    """Simulate an experiment to its horizon; with the terms of its phases.

    Parameters
    ----------
    spec
        With a ``population``.
    seed
        Of people, rewards and privacy noise: the same seed gives the same run.
    """
    population, learner = Linear(spec, seed), PhasedLearner(spec)
    lost = np.max(population.values) - population.values
    draw = int(np.random.default_rng([seed, 1]).integers(2**63))
    state, phases, terms = learner.start(), [], []
    while state.played < spec.experiment.horizon:
        policy = learner.policy(state, state.phase + 1, learner.batch(state), draw)
        regret = float(policy.plays @ lost[policy.support])
        if policy.terms.batch == 0:
            phases.append(_phase(policy, regret, len(state.active)))
            break
        state = learner.learn(state, policy, _released(policy, population, seed, state.phase + 1))
        phases.append(_phase(policy, regret, len(state.active)))
        terms.append(policy.terms)
    best = int(np.argmin(lost))
    run = Run(
        seed=seed,
        regret=sum(phase.regret for phase in phases),
        uniform_regret=float(lost.mean()) * spec.experiment.horizon,
        best_kept=bool(best in state.active),
        clipped=state.clipped,
        phases=tuple(phases),
    )
    return run, tuple(terms)


def _released(policy: PhasedPolicy, population: Linear, seed: int, phase: int) -> Any:
    # People and noise are drawn apart, and by phase: what trust models are compared on is then much the same people.
    rng, noise = (np.random.default_rng([seed, stream, phase]) for stream in (2, 3))
    people = policy.terms.batch
    slots = rng.integers(0, 2**32, people, dtype=np.uint32)
    averages = population.averages(people, policy.support, policy.plays, rng)
    return policy.mechanism.simulate(policy.contribute(slots, averages), noise)


def _phase(policy: PhasedPolicy, regret: float, active: int) -> Phase:
    terms = policy.terms
    messages = terms.batch * terms.messages
    size = policy.mechanism.report_size if terms.batch else 0
    return Phase(policy.rounds, regret, terms.batch, messages, messages * terms.message_bits, messages * size, active)


def simulate(
    spec: PhasedSpec, seeds: int, jobs: int | None = None, backend: Backend = "processes"
) -> Iterator[tuple[Run, tuple[VectorTerms, ...]]]:
    """Runs of seeds 0..seeds-1 as they finish, on ``jobs`` processes; by default one, or one a core for many seeds.

    Raises
    ------
    SpecError
        If the spec has no population.
    """
    jobs = jobs or (None if seeds > 20 else 1)
    return each(simulate_once, [(spec, seed) for seed in range(seeds)], jobs, backend)


def summary(spec: PhasedSpec, done: list[tuple[Run, tuple[VectorTerms, ...]]], started: float) -> dict[str, Any]:
    """Figures over runs; regret intervals are 95 % for the mean (`interval`)."""
    runs = sorted((run for run, _ in done), key=lambda run: run.seed)
    regret = np.array([run.regret for run in runs])
    terms = {one for _, each in done for one in each}
    wall = time.perf_counter() - started
    clipped = float(np.mean([run.clipped for run in runs]))
    return {
        "regret_mean": float(regret.mean()),
        "regret_ci95": interval(regret),
        "regret_worst": float(np.max(regret)),
        "uniform_regret": float(np.mean([run.uniform_regret for run in runs])),
        "best_action_kept": float(np.mean([run.best_kept for run in runs])),
        "bits_mean": _mean(runs, "bits"),
        "messages_mean": _mean(runs, "messages"),
        "bytes_mean": _mean(runs, "bytes"),
        "clients_mean": _mean(runs, "clients"),
        "phases": float(np.mean([sum(phase.clients > 0 for phase in run.phases) for run in runs])),
        "clipped_share": clipped,
        **record(spec, terms),
        "warnings": warnings(spec, terms, clipped),
        "seeds": len(runs),
        "wall_seconds": wall,
        "runs": [asdict(run) for run in runs],
    }


def _mean(runs: list[Run], what: str) -> float:
    return float(np.mean([sum(getattr(phase, what) for phase in run.phases) for run in runs]))
