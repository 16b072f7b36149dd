"""Policies to compare with, found by name: what others do with the same people (docs/baselines.md)."""

from typing import Final

from privateer_core.errors import SpecError
from privateer_core.plugins import Plugins
from privateer_core.spec.spec import Spec
from privateer_lab.baselines.base import Baseline, with_arms

BASELINES: Final = Plugins[type[Baseline]]("privateer.baselines", "distribution that brings it", "--baseline")
"""The installed baselines by name: `Baseline` says what each is."""


def chosen(names: list[str], spec: Spec) -> list[str]:
    """Return the baselines that these names ask for, without repetition; ``all`` is every one that the spec allows.

    Raises
    ------
    SpecError
        If the experiment has no arms, a name is unknown or asks for local privacy where no epsilon is promised, or the
        features make more columns than a baseline can take.
    """
    if names:
        with_arms(spec)
    possible = [name for name, made in BASELINES.items() if spec.privacy.epsilon is not None or not made.private]
    for name in names:
        if name != "all" and name not in BASELINES:
            known = ", ".join(BASELINES)
            raise SpecError(f"no baseline {name!r}", field="--baseline", remedy=f"choose from all, {known}")
        if name != "all" and name not in possible:
            raise SpecError(
                f"{name} needs an epsilon, and the spec promises none",
                field="--baseline",
                remedy="set privacy.model and privacy.epsilon, or leave it out",
            )
        if name != "all" and not _takes(name, spec):
            raise SpecError(
                f"{name} takes 1 to {BASELINES[name].columns_max} columns of features, and there are {spec.dimension}",
                field="--baseline",
                remedy="leave it out",
            )
    return [name for name in possible if _takes(name, spec) and (name in names or "all" in names)]


def _takes(name: str, spec: Spec) -> bool:
    """Whether a baseline can do with a spec's columns: those that learn need one."""
    made = BASELINES[name]
    return (made.learn is not Baseline.learn) <= spec.dimension <= made.columns_max
