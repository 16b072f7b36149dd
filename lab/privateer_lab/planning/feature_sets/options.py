"""Which options of a log are worth trying: those that cost clearly more than they add are left out."""

from collections.abc import Callable, Sequence

from privateer_core.spec.arms import ARMS_MIN, ArmsSpec
from privateer_lab.planning.feature_sets.outcomes import PotentialOutcomes
from privateer_lab.planning.feature_sets.selection import FeatureSet, feature_set
from privateer_lab.planning.feature_sets.surrogate import CellDesign


def worth_trying(
    outcomes: PotentialOutcomes, names: Sequence[str], spec_of: Callable[[Sequence[int]], ArmsSpec | None]
) -> list[int]:
    """Return the places of options without which clearly less would be earned, or of which too little is known.

    names: features of the experiment.
    spec_of: returns the experiment with some of the options; None where it cannot be.
    """

    def earned(places: Sequence[int]) -> FeatureSet | None:
        spec = spec_of(places)
        return None if spec is None else feature_set(outcomes.of(places), names, spec)

    every = list(range(outcomes.rewards.shape[1]))
    whole, rows = earned(every), CellDesign.of(outcomes, names).rows
    found, best, left = every, whole, every
    while len(left) > ARMS_MIN and whole is not None and best is not None:
        fewer = ([one for one in left if one != gone] for gone in left)
        # The option goes that nobody needs and that brings least.
        left = max(fewer, key=lambda places: (outcomes.of(places).best_of(rows), outcomes.rewards[:, places].sum()))
        tried = earned(left)
        if tried is None or best.is_clearly_above(tried):
            break
        if tried.value > best.value and tried.is_clearly_above(whole):
            found, best = left, tried
    return found
