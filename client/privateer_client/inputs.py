"""Contexts and outcomes as the application has them, made into what a policy takes.

Every value has a place, also one that the spec does not allow: whether a device reports must not tell its person's
value, nor what came of a choice. Errors are about names, which are the same for everybody; errors and warnings name
features, never values.
"""

import math
import warnings
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from numbers import Rational
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from privateer_core.errors import InputError, UnfitValueWarning
from privateer_core.policies.policy import Policy
from privateer_core.spec.adjustment import Adjustment, expected, learned_numbers
from privateer_core.spec.context import encoded
from privateer_core.spec.features import Feature
from privateer_core.spec.reward import Reward
from privateer_core.spec.spec import Spec

_AS_IF: Final = "there had been no outcome"
_AS_MISSING: Final = "it were missing"
_EXACT: Final = 2**53


def warn_unfit(error: InputError, as_if: str = _AS_MISSING) -> None:
    """Tell the developer, and nobody else, that a value has no place in the spec."""
    warning = f"{error.field}: {error.detail}; the report is made as if {as_if} ({error.remedy})"
    warnings.warn(warning, UnfitValueWarning, stacklevel=2)


Tell: TypeAlias = Callable[[InputError, str], None]


class UnfitValues:
    """Tells of unfit values, each name once."""

    def __init__(self) -> None:
        self._told = set[str | None]()

    def tell(self, error: InputError, as_if: str) -> None:
        """Tell of a value, as `warn_unfit`."""
        if error.field not in self._told:
            self._told.add(error.field)
            warn_unfit(error, as_if)


def plain(value: Any) -> Any:
    """Return what a policy reads as a number if the value is one: whole numbers as such, others as floating point."""
    if isinstance(value, bool | int | float | np.bool_ | np.number) or not isinstance(value, Rational | Decimal):
        return value
    if isinstance(value, Decimal) and value.is_nan():
        return math.nan
    try:
        number = float(value)
    except OverflowError:
        number = math.inf if isinstance(value, Rational) and int(value.numerator) > 0 else -math.inf
    is_whole = abs(number) <= _EXACT and number.is_integer() and value == int(number)
    return int(number) if is_whole else number


def context_vector(
    values: Mapping[str, Any], features: Mapping[str, Feature], beside: Iterable[str] = (), tell: Tell = warn_unfit
) -> NDArray[np.float64]:
    """Return one person's context, encoded, shape (1, columns).

    A value of another kind than the spec says, or that it does not list or does not allow to be missing, counts as
    missing, with an `UnfitValueWarning`.

    beside: what else the experiment asks for, for the remedy of an error.
    tell: what tells of such values.
    """
    if not isinstance(values, Mapping):
        raise InputError("must be a mapping", field="context", remedy="give {name: value} for every feature")
    unknown = [name for name in values if name not in features]
    if unknown:
        known = ", ".join([*features, *beside]) or "no features"
        raise InputError("the experiment has no such feature", field=str(unknown[0]), remedy=f"it asks for {known}")
    numbers = [_read(values, name, feature, tell) for name, feature in features.items()]
    return encoded(features, np.array([numbers], np.float64))


def features_of(values: Mapping[str, Any], spec: Spec) -> Mapping[str, Any]:
    """Return a person's values without the numbers that adjust the reward alone."""
    if not spec.reward.adjust or not isinstance(values, Mapping):
        return values
    for name in spec.reward.adjust:
        if name not in values:
            remedy = "give it with the context, from before the choice; None says that it is not known"
            raise InputError("missing", field=name, remedy=remedy)
    return {name: value for name, value in values.items() if name in spec.features or name not in spec.reward.adjust}


def adjustment_of(values: Mapping[str, Any], spec: Spec, tell: Tell = warn_unfit) -> tuple[float, NDArray[np.float64]]:
    """Return what a person's numbers from before say of their reward.

    What is no number counts as not known, with an `UnfitValueWarning`.

    Returns
    -------
    By how much the reward is expected to be above the average, where slopes are declared; and the numbers, (1, learned)
    on the scale from 0 to 1, whose slopes policies tell.
    """
    reward = spec.reward
    if not reward.adjust:
        return 0.0, np.zeros((1, 0))
    numbers = np.array([[_read_number(name, one, values[name], tell) for name, one in reward.adjust.items()]])
    return float(expected(reward.adjust, numbers, reward.span)[0]), learned_numbers(reward.adjust, numbers)


def _read_number(name: str, adjustment: Adjustment, value: Any, tell: Tell) -> float:
    try:
        return adjustment.read(name, plain(value))
    except InputError as error:
        tell(error, _AS_MISSING)
        return math.nan


def clipped_features(values: Mapping[str, Any], features: Mapping[str, Feature]) -> tuple[str, ...]:
    """Name the features whose values are beyond the spec's bounds, and so are clipped to them."""

    def clips(name: str, feature: Feature) -> bool:
        try:
            return feature.clips(feature.read(name, plain(values[name])))
        except InputError:
            return False

    return tuple(name for name, feature in features.items() if clips(name, feature))


def _read(values: Mapping[str, Any], name: str, feature: Feature, tell: Tell) -> float:
    if name not in values:
        remedy = (
            "give every feature of the experiment a value; None says that it is not known, where the spec allows it"
        )
        raise InputError("missing", field=name, remedy=remedy)
    try:
        return feature.read(name, plain(values[name]))
    except InputError as error:
        tell(error, _AS_MISSING)
        return math.nan


def read_outcome(
    policy: Policy, spec: Spec, shown: Any, observed: Any, offset: float = 0.0, tell: Tell = warn_unfit
) -> tuple[NDArray[np.float64], bool]:
    """Return one person's rewards as the policy reads them, and whether one had to be clipped.

    What does not fit counts as no outcome, with an `UnfitValueWarning`; of several values, each by itself.

    shown: what was chosen, as the application was given it.
    observed: what the application reports.
    offset: what is subtracted from the reward within its bounds, before it is clipped again.
    tell: what tells of what does not fit.
    """
    numbers, is_clipped = _finite(observed, spec.reward)
    try:
        rewards, clipped = policy.read(spec, numbers)
    except InputError as error:
        tell(error, _AS_IF)
        numbers = _fitting(policy, spec, shown, numbers)
        rewards, clipped = policy.read(spec, numbers)
    if offset:
        rewards, beyond = policy.read(spec, spec.outcome.adjusted(numbers, offset))
        clipped = clipped or beyond
    return rewards, clipped or is_clipped


def _fitting(policy: Policy, spec: Spec, shown: Any, observed: Any) -> Any:
    """Return what is reported without an outcome, but for the values that the policy can read."""
    nothing = spec.without_outcome(shown)
    if not isinstance(nothing, Mapping) or not isinstance(observed, Mapping):
        return nothing
    return {name: observed[name] if _fits(policy, spec, nothing, name, observed) else nothing[name] for name in nothing}


def _fits(policy: Policy, spec: Spec, nothing: Mapping[Any, Any], name: Any, observed: Mapping[Any, Any]) -> bool:
    try:
        policy.read(spec, {**nothing, name: observed[name]})
    except (InputError, KeyError):
        return False
    return True


def _finite(observed: Any, reward: Reward) -> tuple[Any, bool]:
    """Make True and False 1 and 0, and clip what is too large for a number; also tell whether that was so."""
    if isinstance(observed, Mapping):
        read = {name: _finite_number(one, reward) for name, one in observed.items()}
        return {name: value for name, (value, _) in read.items()}, any(clipped for _, clipped in read.values())
    return _finite_number(observed, reward)


def _finite_number(observed: Any, reward: Reward) -> tuple[Any, bool]:
    observed = plain(observed)
    if isinstance(observed, bool | np.bool_):
        return int(observed), False
    if isinstance(observed, int | float | np.integer | np.floating):
        try:
            is_large = math.isinf(observed)
        except OverflowError:
            is_large = True
        if is_large:
            return (reward.high if observed > 0 else reward.low), True
    return observed, False
