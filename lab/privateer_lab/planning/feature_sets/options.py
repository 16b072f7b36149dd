"""Selection of arms worth trying: arms that clearly cost more than they add are dropped."""

from collections.abc import Callable, Sequence

from privateer_core.spec.arms import ARMS_MIN, ArmsSpec
from privateer_lab.planning.feature_sets.outcomes import PotentialOutcomes, sum_best_gains
from privateer_lab.planning.feature_sets.selection import FeatureSet, evaluate_set
from privateer_lab.planning.feature_sets.surrogate import CellDesign


def select_options(
    outcomes: PotentialOutcomes,
    names: Sequence[str],
    make_spec: Callable[[Sequence[int]], ArmsSpec | None],
    *,
    is_cautious: bool = True,
) -> list[int]:
    """Select arms by backward elimination while the reward rises, clearly if cautious; invalid subsets have no spec."""

    def evaluate(options: Sequence[int]) -> FeatureSet | None:
        spec = make_spec(options)
        return None if spec is None else evaluate_set(outcomes.select_options(options), names, spec)

    all_options = list(range(outcomes.rewards.shape[1]))
    full_set = evaluate(all_options)
    sums = outcomes.sums(CellDesign.from_features(outcomes, names).rows, outcomes.gains)
    selected, best_set, candidates = all_options, full_set, all_options
    while len(candidates) > ARMS_MIN and full_set is not None and best_set is not None:
        subsets = ([option for option in candidates if option != dropped] for dropped in candidates)
        # Drop the arm whose loss costs the least gain, and among these the one with the smallest sum.
        candidates = max(subsets, key=lambda options: (sum_best_gains(sums[..., options]), sums[..., options].sum()))
        smaller_set = evaluate(candidates)
        if smaller_set is None or (is_cautious and best_set.is_clearly_better_than(smaller_set)):
            break
        is_certain = not is_cautious or smaller_set.is_clearly_better_than(full_set)
        if smaller_set.value > best_set.value and is_certain:
            selected, best_set = candidates, smaller_set
    return selected
