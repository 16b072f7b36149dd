"""Says where one option for everybody would have earned more than an algorithm that looks at contexts."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from privateer_core.spec.spec import Spec
from privateer_lab.simulation.simulation import Run


class Behind(NamedTuple):
    """Runs in which people got less than the best single option would have given them."""

    runs: int
    of: int
    worst: float
    """Regret over that of the best single option, in the worst of them."""

    @property
    def often(self) -> str:
        """In how many runs, in words."""
        return f"in {self.runs} of {self.of} runs" if self.of > 1 else "in this run"


def behind_the_constant(spec: Spec, runs: Iterable[Run]) -> Behind | None:
    """Return the runs that are behind; None where none is, or no context is looked at.

    Experiments that compare arms are left out: they go on with arms that they know to be worse.
    """
    ratios = [run.regret / run.best_constant_regret for run in runs if _learns(spec, run)]
    behind = [ratio for ratio in ratios if ratio > 1]
    return Behind(len(behind), len(ratios), max(behind)) if behind else None


def _learns(spec: Spec, run: Run) -> bool:
    """Whether a run learned by context, where contexts matter at all."""
    return bool(spec.features) and run.best_constant_regret > 0 and "judged" not in run.facts


def constant_warnings(found: Mapping[str, Behind | None]) -> Sequence[str]:
    """Return a warning about runs that are behind, or none; ``found`` are these by their promises, in words."""
    behind = {promise: one for promise, one in found.items() if one is not None}
    if not behind:
        return ()
    where = ", ".join(f"{promise} {one.often}".strip() for promise, one in behind.items())
    worst = max(one.worst for one in behind.values())
    return (
        f"{where} people got less than the best single option would have given them (regret up to {worst:.2f} times as "
        "large): what contexts are worth did not repay what learning them costs. More people, a larger epsilon or "
        'fewer features may change that; algorithm.name = "bandit" looks for the best single option alone',
    )
