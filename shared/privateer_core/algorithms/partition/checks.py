"""Whether a policy is one that a learner makes."""

import numpy as np

from privateer_core.algorithms.partition.asked import AskedBins
from privateer_core.algorithms.partition.bins import DEPTH_MAX
from privateer_core.algorithms.partition.spec import PartitionSpec
from privateer_core.coins import UNIT


def learners_make(policy: AskedBins, spec: PartitionSpec) -> bool:
    """Whether bins tile the space, arrays have the right shapes and ranges, and all is as the spec says."""
    typed = isinstance(policy.mechanism, policy.mechanisms) and _well_typed(policy, spec.arm_count)
    return typed and policy.tile() and _has_wholes(policy) and _plays_active_arms(policy) and _agrees(policy, spec)


def _well_typed(policy: AskedBins, arms: int) -> bool:
    bins, keys = policy.depths.shape[:1], policy.bins.shape[:1]
    expected = (
        (policy.axes, np.int64, (DEPTH_MAX,)),
        (policy.depths, np.int64, bins),
        (policy.paths, np.int64, bins),
        (policy.active, np.bool_, (*bins, arms)),
        (policy.bins, np.int64, keys),
        (policy.layout.thresholds, np.uint32, (*keys, arms - 1)),
        (policy.bins if policy.wholes is None else policy.wholes, np.int64, keys),
    )
    typed = all(array.dtype == dtype and array.shape == shape for array, dtype, shape in expected)
    named = typed and policy.dimension >= 1 and np.min(policy.axes) >= 0 and np.max(policy.axes) < policy.dimension
    return bool(named) and bins > (0,)


def _has_wholes(policy: AskedBins) -> bool:
    """Whether wholes, if any, count up from 0, and reports are such that they may be about them."""
    if policy.wholes is None:
        return True
    steps = np.diff(policy.wholes, prepend=policy.wholes[:1])
    return bool(policy.fresh_coins and not policy.wholes[:1].any() and ((steps == 0) | (steps == 1)).all())


def _plays_active_arms(policy: AskedBins) -> bool:
    """Whether there is an arm everywhere, keys are distinct bins, and their coins lead to active arms."""
    if not policy.active.any(axis=1).all() or len(np.unique(policy.bins)) != len(policy.bins):
        return False
    if len(policy.bins) and (np.min(policy.bins) < 0 or np.max(policy.bins) >= len(policy.depths)):
        return False
    thresholds = policy.layout.thresholds.astype(np.int64)
    rising = bool((np.diff(thresholds, axis=1) >= 0).all() and (thresholds <= UNIT).all())
    return rising and not bool((policy.layout.shares[~policy.active[policy.bins]] > 0).any())


def _agrees(policy: AskedBins, spec: PartitionSpec) -> bool:
    """Whether the spec has these sizes, and reports are about what it says."""
    same = policy.dimension == spec.dimension and policy.cohort in spec.cohorts
    same = same and not policy.active[:, ~np.array(spec.playable)].any()
    expected = (len(policy.cells), 1) if policy.fresh_coins else (len(policy.bins), spec.arm_count)
    reported = policy.mechanism.layout
    asked = policy.fresh_coins == spec.privacy.arm_in_key and (reported.keys, reported.groups) == expected
    return same and (asked or policy.terms.batch == 0)
