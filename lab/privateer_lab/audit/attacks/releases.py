"""Attacks by people who know everybody else and read what is released: the billboard, and two segments."""

from typing import Final, cast

import numpy as np

from privateer_core.accounting.events import Pure
from privateer_core.algorithms.sparse import SparsePolicy, SparseSpec
from privateer_core.mechanisms.cell_pairs import CellPairs
from privateer_core.mechanisms.screened_moments import Moments, ScreenedMoments
from privateer_core.policies.decisions import Arms
from privateer_core.primitives.bounded_vectors import BoundedVectors
from privateer_core.primitives.contributions import KeyedValues
from privateer_core.primitives.questions import KeyedHits
from privateer_core.privacy.trust import TIGHT
from privateer_core.sampling.entropy import SecureNoise
from privateer_lab.audit.case import Case
from privateer_lab.audit.lower_bounds import Scores
from privateer_lab.audit.views import model_of, releases
from privateer_server.rounds.loop import Schedule, Step

_SEED: Final = 17
_READERS: Final = 100
"""Others whose arms the adversary puts together."""
_ABOVE: Final = 0.9
_BELOW: Final = 0.1
_EPSILON: Final = 1.0
NAME: Final = "one segment or the other"


def billboard_cases(samples: int, factor: float = 1.0) -> list[Case]:
    """Return an attack on the joint promise: the person's features and reward go along, or against each other.

    The arms of everybody else and the published result are all that it looks at; the person's own arm is nobody
    else's to see.

    factor: divides the noise: a planted defect.
    """
    model = model_of(releases)
    spec = SparseSpec.instances()[model]
    step = Schedule(spec).open(_SEED)
    totals = [_total(spec, cast(SparsePolicy, step.policy), side) for side in (1.0, 0.0)]
    event = step.policy.terms.event
    assert event is not None

    def sample(who: int, count: int) -> Scores:
        return np.array([_seen(spec, step, totals[who], factor) for _ in range(count)])

    claim = (spec.privacy.bound, spec.privacy.delta)
    return [Case("the billboard", "sparse", model, "tight", *claim, event, sample, max(300, samples // 100))]


def _total(spec: SparseSpec, policy: SparsePolicy, side: float) -> Moments:
    """Return the sums of a round: of the person, and of others whose first feature and reward go together."""
    rng = np.random.default_rng(_SEED)
    contexts = rng.random((policy.terms.batch, spec.dimension))
    arms = rng.integers(spec.arm_count, size=len(contexts))
    rewards = contexts.reshape(len(contexts), spec.arm_count, -1)[np.arange(len(contexts)), arms, 0]
    contexts[0], rewards[0] = 1.0, side
    made = policy.contribute(contexts, np.zeros(len(contexts), np.uint32), Arms(arms), rewards)
    assert isinstance(made, BoundedVectors)
    mechanism = policy.mechanism
    assert isinstance(mechanism, ScreenedMoments)
    return mechanism.add(mechanism.empty(), mechanism.randomize(made, SecureNoise()))


def _seen(spec: SparseSpec, step: Step, total: Moments, factor: float) -> float:
    """Return what is published of the first feature, and how many others get the arm that it speaks for."""
    mechanism = step.policy.terms.mechanism
    assert isinstance(mechanism, ScreenedMoments)
    noisy = mechanism if factor == 1.0 else mechanism.weaker(factor)
    schedule = Schedule(spec)
    after = schedule.close(step, noisy.release(total, SecureNoise()), _SEED)
    estimated = {one.name: one.value for one in schedule.answer(after).estimates}
    readers = np.full((_READERS, spec.arm_count, spec.arm_features), _BELOW)
    readers[:, 0, 0] = np.linspace(_BELOW, _ABOVE, _READERS)
    coins = np.arange(_READERS, dtype=np.uint32)
    arms = after.policy.decide(readers.reshape(_READERS, -1), coins).arms
    return estimated.get(spec.context.names[0], 0.0) + float((arms == 0).mean()) / _READERS


def segment_cases(samples: int) -> list[Case]:
    """Return an attack on a curator's release: the person is in the one segment or in the other."""
    claim = (model_of(releases), TIGHT, _EPSILON, 0.0)
    return [Case(NAME, "trial", *claim, Pure(_EPSILON), _pairs, max(4_000, samples // 4))]


def _pairs(who: int, count: int) -> Scores:
    """Sample releases about one person, who was treated and earned 1, in one of the two segments.

    One release of many experiments' cells: the noise of each is its own.
    """
    mechanism = CellPairs.calibrated(KeyedHits.of_keys(2 * count), _EPSILON)
    coins, group = np.zeros(count, np.uint32), np.zeros(count, np.int64)
    records = KeyedValues(coins, 2 * np.arange(count) + who, group, np.ones(count))
    total = mechanism.add(mechanism.empty(), mechanism.randomize(records, SecureNoise()))
    return speaks(mechanism.release(total, SecureNoise()).positive.reshape(count, 2), 1.0, mechanism.scale)


def speaks(found: Scores, step: float, scale: float) -> Scores:
    """Return the log-likelihood ratio of the first segment's number being higher by a step, or the second's; (n,)."""
    present = (np.abs(found) - np.abs(found - step)) / scale
    return np.asarray(np.round(present[:, 0] - present[:, 1], 9))
