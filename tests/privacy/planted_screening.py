"""Defects of single choices and of single numbers of a block: too little noise there, or that of another draw."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from privateer_core.mechanisms import screened_moments

Patch = pytest.MonkeyPatch
Less = Callable[[Patch, int], None]
Reused = Callable[[Patch], None]


class Replayed:
    """A source that gives the same words again after `again`."""

    def __init__(self) -> None:
        self._made: list[Any] = []
        self._next = 0

    def again(self, noise: Any) -> "Replayed":
        self._noise, self._next = noise, 0
        return self

    def words(self, count: int) -> Any:
        if self._next == len(self._made) or len(self._made[self._next]) != count:
            self._made[self._next :] = [self._noise.words(count)]
        self._next += 1
        return self._made[self._next - 1]


def choice(candidates: int) -> tuple[Less, Reused]:
    """A choice among so many: four are left at first, three then."""
    made = screened_moments.choose

    def less(patch: Patch, factor: int) -> None:
        def weak(scores: Any, scale: int, noise: Any) -> Any:
            return made(scores, scale // factor if len(scores) == candidates else scale, noise)

        patch.setattr(screened_moments, "choose", weak)

    def reused(patch: Patch) -> None:
        words = Replayed()

        def same(scores: Any, scale: int, noise: Any) -> Any:
            return made(scores, scale, words.again(noise) if len(scores) == candidates else noise)

        patch.setattr(screened_moments, "choose", same)

    return less, reused


def both_choices() -> tuple[Less, Reused]:
    """The second choice has the place of the first, if it is there: one draw decides both."""
    made = screened_moments.choose

    def less(patch: Patch, factor: int) -> None:
        patch.setattr(screened_moments, "choose", lambda scores, scale, noise: made(scores, scale // factor, noise))

    def reused(patch: Patch) -> None:
        drawn: list[int] = []

        def linked(scores: Any, scale: int, noise: Any) -> Any:
            drawn.append(made(scores, scale, noise))
            return drawn[-1] if len(scores) == 4 else min(drawn[-2], len(scores) - 1)

        patch.setattr(screened_moments, "choose", linked)

    return less, reused


def block(own: Callable[[Any, Any], Any]) -> tuple[Less, Reused]:
    """Noise of numbers in a block for which ``own`` (row, column) holds."""
    made = screened_moments._symmetric

    def change(patch: Patch, how: Callable[[Any, Any], Any]) -> None:
        def wrong(deviations: Any, draw: Any) -> Any:
            noise = made(deviations, draw)
            row, column = np.indices(noise.shape)
            return np.where(own(np.minimum(row, column), np.maximum(row, column)), how(noise, deviations), noise)

        patch.setattr(screened_moments, "_symmetric", wrong)

    def reused(patch: Patch) -> None:
        def other(noise: Any, deviations: Any) -> Any:
            row, column = np.indices(noise.shape)
            here = own(np.minimum(row, column), np.maximum(row, column))
            one = tuple(np.argwhere(~here)[-1])
            return np.rint(noise[one] / deviations[one] * deviations).astype(np.int64)

        change(patch, other)

    return lambda patch, factor: change(patch, lambda noise, _: noise // factor), reused
