"""A learner whose evidence may fade, and which compares recent rounds with earlier ones."""

import math
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from privateer_core.algorithms.partition import PartitionSpec
from privateer_core.answer.parts import Contradiction, HalfLives
from privateer_server.algorithms.partition.contradiction import FIRST, Earlier, evidence, verdict
from privateer_server.algorithms.partition.field import Evidence
from privateer_server.algorithms.partition.memory import Bank, new_bank
from privateer_server.algorithms.partition.smoothness import Smoothness
from privateer_server.algorithms.partition.turns import Turns

Array = NDArray[np.float64]
S = TypeVar("S")

_OFTEN: Final = 0.1
"""Posteriors with memory are computed again when people make up this share of the shortest half-life."""


class Remembering(Turns):
    """What the tuned learner does about rewards that move.

    States have evidence, ``precision``, ``moment``, ``past_precision`` and ``past_moment``; ``bank``, whose member in
    use that evidence then is, or None; ``earlier``, or None; and ``own``, ``seen`` and ``computed``.
    """

    def __init__(self, spec: PartitionSpec) -> None:
        super().__init__(spec)
        self._half_lives, self._chooses = spec.algorithm.half_lives, spec.algorithm.memory == "auto"

    @abstractmethod
    def _evidence(self, state: Any) -> list[tuple[slice, Evidence]]:
        """Return what is known of values, by groups of bins that learn from each other."""

    @abstractmethod
    def _smoothness(self, state: Any) -> Smoothness:
        """Return how values vary over the space."""

    def _new_bank(self) -> Bank | None:
        lives = self._half_lives
        # A half-life that the spec gives is used throughout.
        return new_bank(lives, self.spec.arm_count, 0 if self._chooses else len(lives) - 1) if lives else None

    def _remembering_more(self, state: S, added: int) -> S:
        """Return the state with so many more arms, of which no memory knows anything."""
        now: Any = state
        bank = now.bank.rearmed(added) if now.bank else None
        earlier = now.earlier.rearmed(added) if now.earlier else None
        after: S = replace(now, bank=bank, earlier=earlier)
        return after

    def begun(self, state: Any, before: PartitionSpec) -> Any:
        """Return the state of a new experiment: memories stay, and its rounds are compared with each other alone."""
        bank = replace(state.bank, own=0) if state.bank else None
        return super().begun(replace(state, bank=bank, earlier=None), before)

    def _half_life(self, state: Any) -> float:
        """People after whose reports what is known counts half."""
        return self._half_lives[state.bank.used] if state.bank else math.inf

    def _soon(self, state: Any) -> bool:
        """Whether posteriors are to be computed again because what they knew has faded."""
        return bool(state.bank and state.seen - state.computed >= _OFTEN * min(self._half_lives))

    def _remembered(self, state: S) -> S:
        """Have every memory fade and predict what was reported since, and use the one that predicts best."""
        now: Any = state
        bank: Bank | None = now.bank
        if bank is None:
            return state
        precision, moment = now.precision - bank.precision[bank.used], now.moment - bank.moment[bank.used]
        people = now.own - bank.own
        bank = replace(bank.faded(self._half_lives, people), own=now.own)
        if self._chooses:
            bank = bank.weighed(self._scores(now, bank, precision, moment), people)
        bank = bank.learned(precision, moment)
        after: S = knowing(replace(now, bank=bank), bank, bank.used)
        return after

    def _scores(self, state: Any, bank: Bank, precision: Array, moment: Array) -> Array:
        """Logarithm of the density that each memory predicted for what came, but for a constant; (memories,)."""
        smoothness = self._smoothness(state)
        return np.array(
            [
                sum(
                    one.predicted(smoothness, precision[some], moment[some])
                    for some, one in self._evidence(knowing(state, bank, member))
                )
                for member in range(len(bank.precision))
            ]
        )

    def _windowed(self, state: S) -> S:
        """Close the window, and open the next, when as many own people have reported in it as before."""
        now: Any = endless(state)
        before: Earlier | None = now.earlier
        if now.own < (2 * before.own if before else FIRST):
            return state
        window = Earlier(
            own=now.own,
            depths=np.append(now.depths, now.past_depths),
            paths=np.append(now.paths, now.past_paths),
            precision=np.concatenate([now.precision, now.past_precision]),
            moment=np.concatenate([now.moment, now.past_moment]),
            closed=np.append(before.closed, self._doubt(now, before)) if before else np.zeros(0),
            opened=np.append(before.opened, before.own) if before else np.zeros(0, np.int64),
        )
        opened: Any = state
        after: S = replace(opened, earlier=window)
        return after

    def _doubt(self, now: Any, before: Earlier) -> float:
        """Logarithm of the evidence that what is reported in this window contradicts what was known ``before``."""
        old, old_moment = before.of(now.depths, now.paths)
        past, past_moment = before.of(now.past_depths, now.past_paths)

        def likelihood(earlier: float, recent: float) -> float:
            known = replace(
                now,
                # What was known and what is known now may differ in their last digits.
                precision=np.maximum(0.0, earlier * old + recent * (now.precision - old)),
                moment=earlier * old_moment + recent * (now.moment - old_moment),
                past_precision=np.maximum(0.0, earlier * past + recent * (now.past_precision - past)),
                past_moment=earlier * past_moment + recent * (now.past_moment - past_moment),
            )
            return sum(one.likelihood(self._smoothness(now)) for _, one in self._evidence(known))

        return evidence(likelihood)

    def contradiction(self, state: Any) -> Contradiction | None:
        """Whether rounds since a window opened contradict those before; None before the first window opens."""
        before: Earlier | None = state.earlier
        if before is None:
            return None
        windows = np.append(before.closed, self._doubt(endless(state), before))
        return verdict(windows, np.append(before.opened, before.own))

    def moving(self, state: Any) -> Iterator[Contradiction | HalfLives]:
        """Yield whether rounds contradict each other, and which half-life is used, with the probability of each."""
        if found := self.contradiction(state):
            yield found
        if state.bank is not None:
            names = tuple(None if math.isinf(one) else one for one in self._half_lives)
            shares = tuple(round(float(one), 4) for one in state.bank.probabilities) if self._chooses else None
            yield HalfLives(names[state.bank.used], names, shares)


def knowing(state: S, bank: Bank, member: int) -> S:
    """Return the state with the evidence of one member of a bank, as if that one were in use."""
    before: Any = state
    after: S = replace(
        before,
        bank=replace(bank, used=member),
        precision=bank.precision[member],
        moment=bank.moment[member],
        past_precision=bank.past_precision[member],
        past_moment=bank.past_moment[member],
    )
    return after


def endless(state: S) -> S:
    """Return the state with evidence that has not faded, of all rounds that posteriors know."""
    bank = getattr(state, "bank", None)
    return knowing(state, bank, 0) if bank else state
