"""Conversion of the application's contexts and outcomes to the inputs of a policy.

Every value is accepted, also a value that the spec does not allow, since whether a device reports must not depend on
the participant's value or outcome. Errors are about names, which are the same for all participants; errors and warnings
name features, never values.
"""

import math
import warnings
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from decimal import Decimal
from numbers import Rational
from typing import Any, Final, TypeAlias

import numpy as np

from privateer_core.arrays import Array
from privateer_core.errors import InputError, InvalidValueWarning
from privateer_core.policies.policy import Policy
from privateer_core.spec.adjustment import Adjustment, expected_excess, select_learned_numbers
from privateer_core.spec.context import encode_features
from privateer_core.spec.experiment import Source
from privateer_core.spec.features import Feature
from privateer_core.spec.reward import Reward
from privateer_core.spec.spec import Spec

_AS_NO_OUTCOME: Final = "there had been no outcome"
_AS_MISSING: Final = "it were missing"
_EXACT_INTEGER_LIMIT: Final = 2**53


def warn_of_invalid_value(error: InputError, as_if: str = _AS_MISSING) -> None:
    """Warn the developer, on this device alone, that the spec does not allow a value."""
    warning = f"{error.field}: {error.detail}; the report is made as if {as_if} ({error.remedy})"
    warnings.warn(warning, InvalidValueWarning, stacklevel=2)


Warn: TypeAlias = Callable[[InputError, str], None]


class InvalidValueWarnings:
    """Warnings of invalid values, once for each name."""

    def __init__(self) -> None:
        self._warned_fields = set[str | None]()

    def warn(self, error: InputError, as_if: str) -> None:
        """Warn of an invalid value, as `warn_of_invalid_value`, unless there was a warning of its name."""
        if error.field not in self._warned_fields:
            self._warned_fields.add(error.field)
            warn_of_invalid_value(error, as_if)


def to_number(value: Any) -> Any:
    """Convert a rational or decimal number to an int or float, and return all other values unchanged."""
    if isinstance(value, bool | int | float | np.bool_ | np.number) or not isinstance(value, Rational | Decimal):
        return value
    if isinstance(value, Decimal) and value.is_nan():
        return math.nan
    try:
        number = float(value)
    except OverflowError:
        number = math.inf if isinstance(value, Rational) and int(value.numerator) > 0 else -math.inf
    is_whole = abs(number) <= _EXACT_INTEGER_LIMIT and number.is_integer() and value == int(number)
    return int(number) if is_whole else number


def encode_context(
    values: Mapping[str, Any],
    features: Mapping[str, Feature],
    other_names: Iterable[str] = (),
    warn: Warn = warn_of_invalid_value,
) -> Array:
    """Return a participant's encoded context, shape (1, columns).

    A value that the spec does not allow, because of its type or because it is unlisted or missing, counts as missing,
    with an `InvalidValueWarning`.

    other_names: names of the experiment's other values, for the remedy of an error.
    warn: is called with the errors of such values.
    """
    if not isinstance(values, Mapping):
        raise InputError("must be a mapping", field="context", remedy="give {name: value} for every feature")
    unknown = [name for name in values if name not in features]
    if unknown:
        names = ", ".join([*features, *other_names]) or "no features"
        raise InputError("the experiment has no such feature", field=str(unknown[0]), remedy=f"it asks for {names}")
    numbers = [_read_feature(values, name, feature, warn) for name, feature in features.items()]
    return encode_features(features, np.array([numbers], np.float64))


def select_features(values: Mapping[str, Any], spec: Spec) -> Mapping[str, Any]:
    """Return a participant's values without covariates that only adjust the reward; refuse a missing one."""
    if not spec.reward.covariates or not isinstance(values, Mapping):
        return values
    for name in spec.reward.covariates:
        if name not in values:
            remedy = "give it with the context, from before the choice; None says that it is not known"
            raise InputError("missing", field=name, remedy=remedy)
    dropped_names = spec.reward.covariates.keys() - spec.features.keys()
    return {name: value for name, value in values.items() if name not in dropped_names}


def read_offset(values: Mapping[str, Any], spec: Spec, warn: Warn = warn_of_invalid_value) -> tuple[float, Array]:
    """Return the adjustment of a participant's reward by covariates.

    A value that is no number counts as unknown, with an `InvalidValueWarning`.

    Returns
    -------
    The expected deviation of the reward from the average, by the declared slopes; and the covariates, (1, learned) on
    the scale from 0 to 1, whose slopes policies learn.
    """
    reward = spec.reward
    if not reward.covariates:
        return 0.0, np.zeros((1, 0))
    covariates = reward.covariates
    numbers = np.array([[_read_number(name, covariates[name], values[name], warn) for name in covariates]])
    excess = float(expected_excess(covariates, numbers, reward.span)[0])
    return excess, select_learned_numbers(covariates, numbers)


def _read_number(name: str, reader: Adjustment | Feature, value: Any, warn: Warn) -> float:
    """Parse a number of an application; a value that is not allowed is warned about and becomes NaN."""
    try:
        return reader.read(name, to_number(value))
    except InputError as error:
        warn(error, _AS_MISSING)
        return math.nan


def list_clipped_features(values: Mapping[str, Any], features: Mapping[str, Feature]) -> tuple[str, ...]:
    """Return the names of the features whose values are clipped to the spec's bounds."""

    def is_clipped(name: str, feature: Feature) -> bool:
        try:
            return feature.clips(feature.read(name, to_number(values[name])))
        except InputError:
            return False

    return tuple(name for name, feature in features.items() if is_clipped(name, feature))


def _read_feature(values: Mapping[str, Any], name: str, feature: Feature, warn: Warn) -> float:
    """Parse the value of a feature; refuse a context without it; a value that is not allowed becomes NaN."""
    if name not in values:
        remedy = "give every feature of the experiment a value; None says that it is not known"
        raise InputError("missing", field=name, remedy=f"{remedy}, where the spec allows it")
    return _read_number(name, feature, values[name], warn)


def read_outcome(
    policy: Policy, spec: Spec, displayed: Any, observed: Any, offset: float = 0.0, warn: Warn = warn_of_invalid_value
) -> tuple[Array, bool]:
    """Return a participant's rewards as the policy reads them, and whether a reward was clipped.

    An invalid value counts as no outcome, with an `InvalidValueWarning`; of several values, each by itself.

    shown: the choice as the application got it.
    observed: the outcome that the application reports.
    offset: the number to subtract from the clipped reward, which is then clipped again.
    warn: is called with the errors of invalid values.
    """
    numbers, is_clipped = _to_finite(observed, spec.reward)
    try:
        rewards, clipped = policy.read(spec, numbers)
    except InputError as error:
        warn(error, _AS_NO_OUTCOME)
        numbers = _readable_outcome(policy, spec, displayed, numbers)
        rewards, clipped = policy.read(spec, numbers)
    if offset:
        rewards, is_offset_clipped = policy.read(spec, spec.outcome.adjusted(numbers, offset))
        clipped = clipped or is_offset_clipped
    return rewards, clipped or is_clipped


def read_propensity(value: Any, source: Source, warn: Warn = warn_of_invalid_value) -> Array:
    """Return the propensity of a participant's earlier arm, (1,); NaN, with an `InvalidValueWarning`, if unknown.

    A source with public shares takes none, which is the same for all its participants, so that it is an error.
    """
    if source.min_propensities is None:
        if value is not None:
            detail = "must be left out: the source has public shares"
            raise InputError(detail, field="propensity", remedy="leave it out, or set min_propensities in the spec")
        return np.full(1, math.nan)
    number = to_number(value)
    if isinstance(number, int | float | np.number) and not isinstance(number, bool) and 0 < number <= 1:
        return np.array([float(number)])
    detail, remedy = "must be a number above 0 and at most 1", "log it where the arm is given"
    warn(InputError(detail, field="propensity", remedy=remedy), "the arm were unknown")
    return np.full(1, math.nan)


def _readable_outcome(policy: Policy, spec: Spec, displayed: Any, observed: Any) -> Any:
    """Return the default outcome with the observed values that the policy can read."""
    default = spec.without_outcome(displayed)
    if not isinstance(default, Mapping) or not isinstance(observed, Mapping):
        return default
    outcome = dict(default)
    for name in default:
        with suppress(InputError, KeyError):
            policy.read(spec, {**default, name: observed[name]})
            outcome[name] = observed[name]
    return outcome


def _to_finite(observed: Any, reward: Reward) -> tuple[Any, bool]:
    """Convert booleans to 0 and 1, and clip infinite numbers; also return whether a number was clipped."""
    if isinstance(observed, Mapping):
        numbers = {name: _to_finite_number(number, reward) for name, number in observed.items()}
        return {name: value for name, (value, _) in numbers.items()}, any(clipped for _, clipped in numbers.values())
    return _to_finite_number(observed, reward)


def _to_finite_number(observed: Any, reward: Reward) -> tuple[Any, bool]:
    """Return an outcome with true as 1 and infinity as the bound of rewards, and whether it was infinite."""
    observed = to_number(observed)
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
