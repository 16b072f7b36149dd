"""Attacks on releases by readers who know all other participants: the billboard, and two segments."""

from typing import Final, cast

import numpy as np

from privateer_core.accounting.events import Pure
from privateer_core.algorithms.sparse import SparsePolicy, SparseSpec
from privateer_core.mechanisms.cell_pairs import CellPairs
from privateer_core.mechanisms.screened_moments import Moments, ScreenedMoments
from privateer_core.policies.policy import Arms
from privateer_core.primitives.bounded_vectors import BoundedVectors
from privateer_core.primitives.contributions import KeyedValues
from privateer_core.primitives.questions import KeyedHits
from privateer_core.privacy.trust import TIGHT
from privateer_core.sampling.randomness import SecureNoise
from privateer_lab.audit.case import Case
from privateer_lab.audit.law import Scores
from privateer_lab.audit.views import attack_releases, model_for
from privateer_server.rounds.schedule import Schedule, Step

_SEED: Final = 17
_N_READERS: Final = 100
"""Number of other participants whose arms the adversary combines."""
_HIGH_FEATURE: Final = 0.9
_LOW_FEATURE: Final = 0.1
_EPSILON: Final = 1.0
SEGMENT_ATTACK: Final = "one segment or the other"


def billboard_cases(samples: int, factor: float = 1.0) -> list[Case]:
    """Build an attack on the joint promise: the target's features and reward agree, or disagree.

    It uses the arms of all others and the published result, not the target's arm; ``factor`` divides the noise.
    """
    model = model_for(attack_releases)
    spec = SparseSpec.instances()[model]
    step = Schedule(spec).open(_SEED)
    totals = [_sum_round(spec, cast(SparsePolicy, step.policy), reward) for reward in (1.0, 0.0)]
    event = step.policy.terms.event
    assert event is not None

    def sample(neighbour: int, count: int) -> Scores:
        return np.array([_score_billboard(spec, step, totals[neighbour], factor) for _ in range(count)])

    claim = (spec.privacy.bound, spec.privacy.delta)
    return [Case("the billboard", "sparse", model, "tight", *claim, event, sample, max(300, samples // 100))]


def _sum_round(spec: SparseSpec, policy: SparsePolicy, reward: float) -> Moments:
    """Return the sums of a round with the target and a crowd whose reward is the first feature."""
    rng = np.random.default_rng(_SEED)
    contexts = rng.random((policy.terms.batch_size, spec.dimension))
    arms = rng.integers(spec.arm_count, size=len(contexts))
    rewards = contexts.reshape(len(contexts), spec.arm_count, -1)[np.arange(len(contexts)), arms, 0]
    contexts[0], rewards[0] = 1.0, reward
    contribution = policy.contribute(contexts, np.zeros(len(contexts), np.uint32), Arms(arms), rewards)
    assert isinstance(contribution, BoundedVectors)
    mechanism = policy.mechanism
    assert isinstance(mechanism, ScreenedMoments)
    return mechanism.add(mechanism.empty(), mechanism.randomize(contribution, SecureNoise()))


def _score_billboard(spec: SparseSpec, step: Step, total: Moments, factor: float) -> float:
    """Return the published estimate of the first feature, plus the share of other participants with its arm."""
    mechanism = step.policy.terms.mechanism
    assert isinstance(mechanism, ScreenedMoments)
    weakened = mechanism if factor == 1.0 else mechanism.with_less_noise(factor)
    schedule = Schedule(spec)
    next_step = schedule.advance(step, weakened.release(total, SecureNoise()), _SEED)
    estimated = {estimate.name: estimate.value for estimate in schedule.answer(next_step).estimates}
    readers = np.full((_N_READERS, spec.arm_count, spec.arm_features), _LOW_FEATURE)
    readers[:, 0, 0] = np.linspace(_LOW_FEATURE, _HIGH_FEATURE, _N_READERS)
    coins = np.arange(_N_READERS, dtype=np.uint32)
    arms = next_step.policy.decide(readers.reshape(_N_READERS, -1), coins).arms
    return estimated.get(spec.context.names[0], 0.0) + float((arms == 0).mean()) / _N_READERS


def segment_cases(samples: int) -> list[Case]:
    """Build an attack on a curator's release: the target is in the first or in the second segment."""
    claim = (model_for(attack_releases), TIGHT, _EPSILON, 0.0)
    return [Case(SEGMENT_ATTACK, "trial", *claim, Pure(_EPSILON), _sample_segments, max(4_000, samples // 4))]


def _sample_segments(neighbour: int, count: int) -> Scores:
    """Score releases of a treated person with reward 1 in either segment; a release has many experiments' cells."""
    mechanism = CellPairs.calibrated(KeyedHits.from_keys(2 * count), _EPSILON)
    coins, group = np.zeros(count, np.uint32), np.zeros(count, np.int64)
    records = KeyedValues(coins, 2 * np.arange(count) + neighbour, group, np.ones(count))
    total = mechanism.add(mechanism.empty(), mechanism.randomize(records, SecureNoise()))
    return segment_log_ratio(mechanism.release(total, SecureNoise()).positive.reshape(count, 2), 1.0, mechanism.scale)


def segment_log_ratio(numbers: Scores, step: float, scale: float) -> Scores:
    """Return the log-likelihood ratio that a step is in the first segment's number or in the second's, shape (n,)."""
    log_ratios = (np.abs(numbers) - np.abs(numbers - step)) / scale
    return np.asarray(np.round(log_ratios[:, 0] - log_ratios[:, 1], 9))
