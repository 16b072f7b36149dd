"""Attacks on whole phased experiments: an adversary who sees every phase, and knows everybody but one person."""

import numpy as np

from privateer.accounting.events import Event, Gaussian, Parallel, Pure
from privateer.algorithms.phased import PhasedPolicy
from privateer.contributions import BoundedVectors, VectorSums
from privateer.mechanisms.vector_bits import BitVectors
from privateer.mechanisms.vector_gaussian import CentralVectors, GaussianVectors
from privateer.mechanisms.vector_symbol import VectorSymbol
from privateer.phased import PhasedSpec
from privateer.sampling.entropy import SecureNoise
from privateer.sections import parse_section
from privateer_lab.audit.case import Case
from privateer_lab.audit.evidence import Scores
from privateer_server.algorithms.phased import PhasedLearner

_SEED = 7
_BEYOND = 9.0
"""Rewards of the target in units of their bound: what protects a person must not depend on what they observe."""
_BATCHES_AT_ONCE = 100


def phased_cases(samples: int) -> list[Case]:
    """Every trust model with a claim, in both calibrations; published normal noise is private below epsilon 1 alone."""
    promises = (
        ("local", "tight", 1.0, 0.0, samples),
        ("local", "tight", 1.0, 0.25, samples),
        ("local", "published", 0.9, 1e-6, samples // 4),
        ("central", "tight", 1.0, 1e-6, samples // 2),
        ("central", "published", 0.9, 1e-6, samples // 10),
        ("shuffle", "tight", 1.0, 0.01, max(4000, samples // 10)),
        ("shuffle", "published", 10.0, 0.01, samples // 20),
    )
    return [_case(*promise[:4], count=max(2000, promise[4])) for promise in promises]


def _case(model: str, calibration: str, epsilon: float, delta: float, count: int) -> Case:
    spec = _spec(model, calibration, epsilon, delta)
    policies = _phases(spec)
    event = _worst(policies)
    asked = _most_asked(policies, spec.experiment.people)

    def sample(who: int, count: int) -> Scores:
        return sum((_seen(policy, who, count) for policy in asked), np.zeros(count))

    name = f"{len(policies)} phases, {policies[0].terms.mechanism}"
    return Case(name, "PhasedPolicy", model, calibration, epsilon, delta, event, sample, count)


def _spec(model: str, calibration: str, epsilon: float, delta: float) -> PhasedSpec:
    """Three phases that ask everybody of a small population once."""
    privacy = {"model": model, "calibration": calibration, "epsilon": epsilon, "delta": delta}
    shuffle = {"min_batch": 10, "honest_fraction": 1.0}
    data = {
        "experiment": {"name": "audit", "horizon": 130, "people": 64},
        "actions": {"count": 6, "dimension": 3, "seed": 3},
        "reward": {"low": -1.0, "high": 1.0},
        "privacy": {**privacy, **(shuffle if model == "shuffle" else {})},
        "algorithm": {"name": "phased", "alpha": 0.6, "clients": 8.0},
    }
    return parse_section(PhasedSpec, data)


def _phases(spec: PhasedSpec) -> list[PhasedPolicy]:
    """The policies of an experiment in which all actions are alike, so that none is dropped."""
    learner = PhasedLearner(spec)
    state, policies = learner.start(), []
    while batch := learner.batch(state):
        policy = learner.policy(state, state.phase + 1, batch, _SEED)
        state = learner.learn(state, policy, VectorSums(batch, np.zeros(len(policy.support)), 0.0))
        policies.append(policy)
    return policies


def _most_asked(policies: list[PhasedPolicy], people: int) -> list[PhasedPolicy]:
    """The phases that ask the person whom most phases ask; the promise counts on one."""
    asked = np.array([np.isin(np.arange(people), policy.asked(people)) for policy in policies])
    target = int(np.argmax(asked.sum(axis=0)))
    return [policy for policy, has in zip(policies, asked[:, target], strict=True) if has]


def _worst(policies: list[PhasedPolicy]) -> Event:
    """The claim: a person is in one phase, and normal noise of different phases is ordered by its size."""
    events = tuple(policy.terms.event or Pure(0.0) for policy in policies)
    normal = [event for event in events if isinstance(event, Gaussian)]
    if len(normal) == len(events):
        return max(normal, key=lambda event: event.sensitivity / event.standard_deviation)
    return Parallel(events)


def _told(policy: PhasedPolicy, who: int, count: int) -> BoundedVectors:
    """The target's contribution, ``count`` times: all rewards far above the range, or far below."""
    slots = (SecureNoise().words(count) >> np.uint64(32)).astype(np.uint32)
    sign = _BEYOND * (1.0 - 2.0 * who)
    return policy.contribute(slots, np.full((count, len(policy.support)), policy.middle + sign * policy.terms.bound))


def _seen(policy: PhasedPolicy, who: int, count: int) -> Scores:
    """What a phase tells of the target, the larger the more it speaks for neighbour 0; shape (count,)."""
    mechanism = policy.mechanism
    told = _told(policy, who, count)
    if isinstance(mechanism, VectorSymbol):
        return _named(policy, mechanism, told)
    variance = policy.terms.spread(policy.terms.batch)[0] * policy.terms.batch**2
    if isinstance(mechanism, GaussianVectors):
        reports = mechanism.parse(mechanism.randomize(told, SecureNoise()).tobytes())
        return np.asarray(reports.sum(axis=1) * mechanism.ball.step / variance * policy.terms.batch)
    if isinstance(mechanism, CentralVectors):
        reports = mechanism.randomize(BoundedVectors(told.slots[:1], told.values[:1]), SecureNoise())
        total = mechanism.add(mechanism.empty(), reports)
        sums = [mechanism.release(total, SecureNoise()).sums.sum() for _ in range(count)]
    else:
        sums = _batches(policy, mechanism, told)
    return np.asarray(np.array(sums) / variance)


def _named(policy: PhasedPolicy, mechanism: VectorSymbol, told: BoundedVectors) -> Scores:
    reports = mechanism.parse(mechanism.randomize(told, SecureNoise()).tobytes())
    sent = reports["symbol"].astype(np.int64)[:, None]
    owns = []
    for who in (0, 1):
        values = _told(policy, who, len(told)).values
        owns.append((mechanism.own(BoundedVectors(reports["slot"], values)) == sent).any(axis=1).astype(float))
    return np.asarray(owns[0] - owns[1])


def _batches(policy: PhasedPolicy, mechanism: BitVectors, told: BoundedVectors) -> list[float]:
    """Sums of shuffled batches; everybody but the target observes the middle of the range."""
    people, size = policy.terms.batch, len(policy.support)
    if policy.terms.calibration == "published":
        return [_simulated(mechanism, told.values[i], people) for i in range(len(told))]
    sums = []
    for start in range(0, len(told), _BATCHES_AT_ONCE):
        targets = told.values[start : start + _BATCHES_AT_ONCE]
        values = np.zeros((len(targets), people, size))
        values[:, 0] = targets
        slots = np.zeros(len(targets) * people, np.uint32)
        messages = mechanism.randomize(BoundedVectors(slots, values.reshape(-1, size)), SecureNoise())
        for batch in messages.reshape(len(targets), -1):
            total = mechanism.add(mechanism.empty(), batch)
            sums.append(float(mechanism.release(total, SecureNoise()).sums.sum()))
    return sums


def _simulated(mechanism: BitVectors, target: Scores, people: int) -> float:
    """A published batch, of hundreds of thousands of bits, is drawn from its law."""
    values = np.zeros((people, len(target)))
    values[0] = target
    batch = BoundedVectors(np.zeros(people, np.uint32), values)
    return float(mechanism.simulate(batch, np.random.default_rng()).sums.sum())
