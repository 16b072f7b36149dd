"""Columns of a log: the options that were chosen, and what came of them."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from privateer_core.errors import SpecError
from privateer_core.spec.arms import ARM_NAME, ARMS_MAX, ARMS_MIN
from privateer_lab.drafting.column_profiles import Profile, Value, shortened
from privateer_lab.drafting.feature_drafts import bounds_of, text_of
from privateer_lab.environments.files.file_columns import YES

_LETTERS: Final = 64


@dataclass(frozen=True)
class ArmNames:
    """Options as the data call them, and as a spec may."""

    values: Sequence[str]  # as the data have them
    allowed: Sequence[str]  # as a spec may have them, in the same order

    @classmethod
    def given(cls, names: Sequence[str]) -> Self:
        """Return options by names that somebody chose, which a spec checks."""
        return cls(names, names)

    @classmethod
    def of(cls, values: Sequence[str]) -> Self:
        """Return options by values of a column."""
        allowed: list[str] = []
        for place, value in enumerate(values, 1):
            name = _allowed(value) or f"option {place}"
            while name in allowed:
                name = f"{name[: _LETTERS - 4]} {place}"
            allowed.append(name)
        return cls(values, allowed)

    def notes(self, column: str) -> list[str]:
        """Say which options have another name in the spec."""
        changed = [(value, name) for value, name in zip(self.values, self.allowed, strict=True) if value != name]
        if not changed:
            return []
        told = ", ".join(f"{shortened(value)!r} is {name!r}" for value, name in changed)
        return [f"{column}: names of options are shortened, and lack signs that no spec takes: {told}."]


def _allowed(value: str) -> str:
    """Return a name as near to a value as a spec allows."""
    letters = "".join(one if re.fullmatch(ARM_NAME, one) and one.isprintable() else " " for one in value)
    return " ".join(letters.split())[:_LETTERS].strip()


def arms_of(profile: Profile) -> ArmNames:
    """Return the options of a log."""
    count = len(profile.counts)
    if count < ARMS_MIN:
        remedy = "name the column that says what each person got"
        raise SpecError("every row has the same option", field=shortened(profile.name), remedy=remedy)
    if count > ARMS_MAX:
        detail = f"has {count:,} different values, and an experiment at most {ARMS_MAX} options"
        raise SpecError(
            detail, field=shortened(profile.name), remedy="leave out rows of rare ones, or name another column"
        )
    return ArmNames.of(sorted(map(text_of, profile.counts)))


def classes_of(profile: Profile) -> ArmNames:
    """Return the classes of a label."""
    values = sorted(map(text_of, profile.counts))
    if not ARMS_MIN <= len(values) <= ARMS_MAX:
        detail = f"must have {ARMS_MIN} to {ARMS_MAX} different values"
        raise SpecError(detail, field=shortened(profile.name), remedy="choose another column")
    return ArmNames.of(values)


def reward_of(profile: Profile) -> NDArray[np.float64]:
    """Return what came of each row's option; yes and no are 1 and 0."""
    field = shortened(profile.name)
    if profile.is_constant:
        remedy = "name another column, or give rows with other outcomes"
        raise SpecError("every row has the same reward, so nothing can be learned", field=field, remedy=remedy)
    boolean = profile.is_boolean
    each = np.array([_number(one, boolean) for one in profile.values])
    if not np.isfinite(each).all():
        remedy = "make it 1 and 0, or numbers; or name another column"
        raise SpecError("must be numbers, or yes and no, and has other values", field=field, remedy=remedy)
    return np.asarray(each[profile.places])


def _number(value: Value, boolean: bool) -> float:
    if isinstance(value, str):
        return float(value.lower() in YES) if boolean else math.nan
    return float(value)


class BoundsSource(NamedTuple):
    """Where the bounds of a reward come from."""

    words: str
    from_data: bool


def bounds_of_reward(
    numbers: NDArray[np.float64], given: tuple[float, float] | None
) -> tuple[float, float, BoundsSource]:
    """Return the bounds of rewards that are numbers, and where they come from."""
    if given is not None:
        return *given, BoundsSource("as given", False)
    if numbers.min() >= 0 and numbers.max() <= 1:
        return 0.0, 1.0, BoundsSource("those that a spec has", False)
    return *bounds_of(numbers), BoundsSource("about 98 in 100 rewards are between them", True)
