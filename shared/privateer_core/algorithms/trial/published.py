"""What a spec may say whose trial runs as paper 4 publishes it, ConSE or DP-ConSE: in simulation alone."""

from typing import Final

from privateer_core.algorithms.trial.sections import SegmentsSection, TrialSection
from privateer_core.arms_spec import ArmsTable
from privateer_core.errors import SpecError
from privateer_core.spec import Privacy

ROUNDS_MAX: Final = 2000
_THEIRS: Final = frozenset({"name", "alpha", "width", "rate"})
"""Keys that mean something as published; all others are of the tight trial."""


def check_published(section: TrialSection, segments: SegmentsSection, experiment: ArmsTable, privacy: Privacy) -> None:
    """Refuse what the paper does not have: one number in equal bins, its promise, and none of our rules.

    Raises
    ------
    SpecError
        Naming the field.
    """
    people = experiment.horizon
    for name, field in TrialSection.model_fields.items():
        if name not in _THEIRS and getattr(section, name) != field.default:
            raise _refused(f"algorithm.{name}", "is not part of the published algorithm", "remove it")
    if segments.bins is None or len(segments.by) != 1:
        raise _refused("segments.bins", "must part one number in the published algorithm", "name it, and give bins")
    if privacy.trust.promises and privacy.delta < 1 / people:
        detail = "must be at least 1 / experiment.horizon, which is what the paper states"
        raise _refused("privacy.delta", detail, f"set it to {1 / people:.3g}")
    if people > ROUNDS_MAX * experiment.round_size:
        detail = f"makes more than {ROUNDS_MAX:,} rounds"
        raise _refused("experiment.round_size", detail, f"raise it to {-(-people // ROUNDS_MAX)}")


def round_ends(people: int, size: int) -> tuple[int, ...]:
    """Return the people after each round: rounds of one size, and one that ends with the first half of all people."""
    half = people // 2
    return (*range(size, half, size), half, *range(half + size, people, size), people)


def _refused(field: str, detail: str, remedy: str) -> SpecError:
    return SpecError(detail, field=field, remedy=remedy)
