"""Selection of arms worth trying: arms that cost more than they add are dropped."""

from collections.abc import Callable, Sequence

from privateer_core.spec.arms import ARMS_MIN, ArmsSpec
from privateer_lab.planning.feature_sets.outcomes import PotentialOutcomes, sum_best_gains
from privateer_lab.planning.feature_sets.selection import FeatureSet, evaluate_set
from privateer_lab.planning.feature_sets.surrogate import CellDesign


def select_options(
    outcomes: PotentialOutcomes, names: Sequence[str], make_spec: Callable[[Sequence[int]], ArmsSpec | None]
) -> list[list[int]]:
    """Select arms by backward elimination: a set that is clearly better than all arms, and the one with most reward.

    Sets whose spec is invalid, as with all arms, end the elimination; the two sets may be equal.
    """

    def evaluate(options: Sequence[int]) -> FeatureSet | None:
        spec = make_spec(options)
        return None if spec is None else evaluate_set(outcomes.select_options(options), names, spec)

    candidates = list(range(outcomes.rewards.shape[1]))
    full_set = evaluate(candidates)
    sums = outcomes.sums(CellDesign.from_features(outcomes, names).rows, outcomes.gains)
    sums = sums if names else sums.sum(axis=0, keepdims=True)  # halves of one row may disagree on its best arm
    certain, certain_set, highest, highest_set, is_acceptable = candidates, full_set, candidates, full_set, True
    while len(candidates) > ARMS_MIN and full_set and certain_set and highest_set:
        subsets = ([option for option in candidates if option != dropped] for dropped in candidates)
        # Drop the arm whose loss costs the least gain, and among these the one with the smallest sum.
        candidates = max(subsets, key=lambda options: (sum_best_gains(sums[..., options]), sums[..., options].sum()))
        smaller_set = evaluate(candidates)
        if smaller_set is None:
            break
        is_acceptable = is_acceptable and not certain_set.is_clearly_better_than(smaller_set)
        if is_acceptable and smaller_set.value > certain_set.value and smaller_set.is_clearly_better_than(full_set):
            certain, certain_set = candidates, smaller_set
        if smaller_set.value > highest_set.value:
            highest, highest_set = candidates, smaller_set
    return [certain, highest]
