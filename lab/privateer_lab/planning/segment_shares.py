"""How many of a spec's simulated people are in each segment, by which a test of segments is planned."""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from privateer_core.spec.arms import ArmsSpec
from privateer_core.spec.spec import Spec
from privateer_lab.environments import environment_for
from privateer_lab.simulation.devices import scaled
from privateer_lab.simulation.scores import compares
from privateer_server.rounds.loop import Schedule

_PEOPLE: Final = 20_000
"""People of whom it is seen which segments somebody is in."""


def named_shares(spec: Spec) -> dict[str, float]:
    """Return the shares of a spec's people in each segment, in order; nothing without people or segments."""
    if spec.population is None or not isinstance(spec, ArmsSpec):
        return {}
    policy: Any = Schedule(spec).open(0).policy
    if not compares(policy):
        return {}
    compared = ((group, name, arm) for name, group, arm, _ in policy.comparisons(spec) if group is not None)
    names = {group: name.removeprefix(f"{spec.options[arm]}: ") for group, name, arm in compared}
    if len(names) < 2:
        return {}
    contexts = environment_for(spec, 0).contexts(0, min(_PEOPLE, spec.experiment.horizon), np.random.default_rng(0))
    groups: NDArray[np.int64] = policy.groups(scaled(contexts, spec))
    counts = np.bincount(groups, minlength=max(names) + 1) / len(groups)
    return {name: float(counts[group]) for group, name in sorted(names.items())}


def shares_of_segments(spec: Spec) -> list[float] | None:
    """Return the shares of a spec's people in its segments; None where it declares them, or none are known."""
    if not leaves_shares_open(spec):
        return None
    return list(named_shares(spec).values()) or None


def leaves_shares_open(spec: Spec) -> bool:
    """Tell whether the spec leaves it open how many people are in each segment."""
    segments = getattr(spec, "segments", None)
    return segments is not None and segments.shares is None
