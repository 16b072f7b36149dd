"""Defects of single choices and of single numbers of a block: too little noise, or the noise of another draw."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from privateer_core.mechanisms import screened_moments

Patch = pytest.MonkeyPatch
ReduceNoise = Callable[[Patch, int], None]
ReuseNoise = Callable[[Patch], None]


class Replayed:
    """A source that gives the same words again after `restart`."""

    def __init__(self) -> None:
        self._word_blocks: list[Any] = []
        self._next = 0

    def restart(self, noise: Any) -> "Replayed":
        self._noise, self._next = noise, 0
        return self

    def words(self, count: int) -> Any:
        if self._next == len(self._word_blocks) or len(self._word_blocks[self._next]) != count:
            self._word_blocks[self._next :] = [self._noise.words(count)]
        self._next += 1
        return self._word_blocks[self._next - 1]


def choice(candidates: int) -> tuple[ReduceNoise, ReuseNoise]:
    """Return the defects of the choice among this number of candidates: the first is among four, the second three."""
    draw_choice = screened_moments.draw_choice

    def reduce_noise(patch: Patch, factor: int) -> None:
        def draw_with_smaller_scale(scores: Any, scale: int, noise: Any) -> Any:
            return draw_choice(scores, scale // factor if len(scores) == candidates else scale, noise)

        patch.setattr(screened_moments, "draw_choice", draw_with_smaller_scale)

    def reuse_noise(patch: Patch) -> None:
        words = Replayed()

        def draw_with_same_words(scores: Any, scale: int, noise: Any) -> Any:
            return draw_choice(scores, scale, words.restart(noise) if len(scores) == candidates else noise)

        patch.setattr(screened_moments, "draw_choice", draw_with_same_words)

    return reduce_noise, reuse_noise


def both_choices() -> tuple[ReduceNoise, ReuseNoise]:
    """Return the defects of both choices: too small a scale, or the second choice repeats the first one's index."""
    draw_choice = screened_moments.draw_choice

    def reduce_noise(patch: Patch, factor: int) -> None:
        patch.setattr(
            screened_moments, "draw_choice", lambda scores, scale, noise: draw_choice(scores, scale // factor, noise)
        )

    def reuse_noise(patch: Patch) -> None:
        choices: list[int] = []

        def draw_linked(scores: Any, scale: int, noise: Any) -> Any:
            choices.append(draw_choice(scores, scale, noise))
            return choices[-1] if len(scores) == 4 else min(choices[-2], len(scores) - 1)

        patch.setattr(screened_moments, "draw_choice", draw_linked)

    return reduce_noise, reuse_noise


def block(is_affected: Callable[[Any, Any], Any]) -> tuple[ReduceNoise, ReuseNoise]:
    """Return the defects of the block's numbers for which ``is_affected`` (row, column) is true."""
    draw_symmetric = screened_moments._draw_symmetric

    def change(patch: Patch, distort: Callable[[Any, Any], Any]) -> None:
        def draw_distorted(deviations: Any, draw: Any) -> Any:
            noise = draw_symmetric(deviations, draw)
            row, column = np.indices(noise.shape)
            mask = is_affected(np.minimum(row, column), np.maximum(row, column))
            return np.where(mask, distort(noise, deviations), noise)

        patch.setattr(screened_moments, "_draw_symmetric", draw_distorted)

    def reuse_noise(patch: Patch) -> None:
        def copy_donor(noise: Any, deviations: Any) -> Any:
            row, column = np.indices(noise.shape)
            mask = is_affected(np.minimum(row, column), np.maximum(row, column))
            donor = tuple(np.argwhere(~mask)[-1])
            return np.rint(noise[donor] / deviations[donor] * deviations).astype(np.int64)

        change(patch, copy_donor)

    return lambda patch, factor: change(patch, lambda noise, _: noise // factor), reuse_noise
