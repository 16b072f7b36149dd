"""Outcomes as the application has them, made into what a policy takes.

Whatever was observed has a place: whether a device reports must not tell what came of its person's choice.
"""

import math
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from privateer_client.features import warn_unfit
from privateer_core.errors import InputError
from privateer_core.policy import Policy
from privateer_core.reward import Reward
from privateer_core.spec import Spec

_AS_IF: Final = "there had been no outcome"


def read_outcome(policy: Policy, spec: Spec, shown: Any, told: Any) -> tuple[NDArray[np.float64], bool]:
    """Return one person's rewards as the policy reads them, and whether one had to be clipped.

    What does not fit counts as no outcome, with an `UnfitValueWarning`; of several values, each by itself.

    Parameters
    ----------
    shown
        What was chosen, as the application was given it.
    told
        What the application reports.
    """
    numbers, is_clipped = _finite(told, spec.reward)
    try:
        rewards, clipped = policy.read(spec, numbers)
    except InputError as error:
        warn_unfit(error, _AS_IF)
        rewards, clipped = policy.read(spec, _fitting(policy, spec, shown, numbers))
    return rewards, clipped or is_clipped


def _fitting(policy: Policy, spec: Spec, shown: Any, told: Any) -> Any:
    """Return what is reported without an outcome, but for the values that the policy can read."""
    nothing = spec.without_outcome(shown)
    if not isinstance(nothing, Mapping) or not isinstance(told, Mapping):
        return nothing
    return {name: told[name] if _fits(policy, spec, nothing, name, told) else nothing[name] for name in nothing}


def _fits(policy: Policy, spec: Spec, nothing: Mapping[Any, Any], name: Any, told: Mapping[Any, Any]) -> bool:
    try:
        policy.read(spec, {**nothing, name: told[name]})
    except (InputError, KeyError):
        return False
    return True


def _finite(told: Any, reward: Reward) -> tuple[Any, bool]:
    """Make True and False 1 and 0, and clip what is too large for a number; also tell whether that was so."""
    if isinstance(told, Mapping):
        read = {name: _finite_number(one, reward) for name, one in told.items()}
        return {name: value for name, (value, _) in read.items()}, any(clipped for _, clipped in read.values())
    return _finite_number(told, reward)


def _finite_number(told: Any, reward: Reward) -> tuple[Any, bool]:
    if isinstance(told, bool | np.bool_):
        return int(told), False
    if isinstance(told, int | float | np.integer | np.floating):
        try:
            is_large = math.isinf(told)
        except OverflowError:
            is_large = True
        if is_large:
            return (reward.high if told > 0 else reward.low), True
    return told, False
