"""The search for the fewest rules that do nearly as well as a policy: exceptions are put before what they are from."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from privateer_core.answer.conclusion import RULES_MAX
from privateer_core.portable import first_largest

Array = NDArray[np.float64]
Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]
ENOUGH: Final = 0.98
"""Share of the policy's gain that is enough."""
ENOUGH_OF_CHANCE: Final = 0.8
"""The same where it is not known whether there is a gain: more rules would say what chance says."""
_PARTS_MAX: Final = 4
"""Parts that a rule joins, at most."""
_PRICE: Final = 0.005
"""Share of the policy's gain that a part of a rule costs, so that rules with fewer parts go first."""
_LEAST: Final = 0.002
"""Share of the policy's gain that one more rule must bring."""
_NARROWER: Final = 0.01
"""Share of the policy's gain that a further part in a rule must bring."""
_STEPS: Final = 12
_TRIED: Final = 8
"""Pairs of parts that are narrowed, for each option."""
_NOTHING: Final = 1e-9
_PLACES: Final = 9
"""Decimal places of a share of the policy's gain with which pairs are ranked."""


@dataclass(frozen=True)
class FoundRule:
    """A rule: those who are in all of some parts get an option."""

    parts: tuple[int, ...]  # places of the parts; none: everybody else
    option: int  # what they get
    covers: Bools  # shape (n,): to whom it applies, if no rule before it does


@dataclass(frozen=True)
class RuleList:
    """Rules in order, the last for everybody else, and the share of the policy's gain that they keep."""

    rules: tuple[FoundRule, ...]
    gain_kept: float

    @property
    def first(self) -> Ints:
        """The rule that applies to everybody first, (n,)."""
        return np.asarray(np.stack([one.covers for one in self.rules]).argmax(axis=0))


def search(parts: Bools, worth: Array, chosen: Ints, enough: float = ENOUGH) -> RuleList:
    """Return few rules whose value is near that of a policy.

    Greedy: each step takes the option and the pairs of parts that improve most on the rules so far, of all pairs, so
    that two features that matter only together are found, narrows them, and keeps the best. A rule that is found later
    comes before the others. Rules and parts that bring nothing any more are taken out at the end.

    parts (parts, n): who is in each part from which rules are made.
    worth (n, options): the reward of each option for everybody, times their share.
    chosen (n,): the policy's options.
    enough: the share of the policy's gain that rules must keep, if seven can.
    """
    people = np.arange(len(chosen))
    options, totals = np.unique(chosen), worth.sum(axis=0)
    best = int(options[totals[options].argmax()])
    gain = float(worth[people, chosen].sum() - totals[best])
    rest = FoundRule((), best, np.ones(len(chosen), np.bool_))
    if gain <= _NOTHING * max(1.0, float(np.abs(totals).max())):
        return RuleList((rest,), 1.0)
    task = _Task(parts, worth, options, gain, float(totals[best]), enough)
    rules: tuple[FoundRule, ...] = (rest,)
    for _ in range(_STEPS):
        if len(rules) == RULES_MAX:  # exceptions may have made others needless
            rules = task.pruned(rules)
        found = task.better(rules) if len(rules) < RULES_MAX and task.kept(rules) < enough else None
        if found is None:
            break
        rules = task.settled((found, *rules))
    rules = task.ordered(task.pruned(rules))
    return RuleList(rules, min(1.0, task.kept(rules)))


@dataclass(frozen=True)
class _Task:
    parts: Bools
    worth: Array
    options: Ints
    gain: float
    constant: float
    enough: float

    @cached_property
    def numbers(self) -> Array:
        """Parts as numbers, for products."""
        return self.parts.astype(np.float64)

    def given(self, rules: tuple[FoundRule, ...]) -> Ints:
        first = np.stack([one.covers for one in rules]).argmax(axis=0)
        return np.asarray(np.array([one.option for one in rules])[first])

    def kept(self, rules: tuple[FoundRule, ...]) -> float:
        """Return the share of the gain that rules keep."""
        value = float(self.worth[np.arange(len(self.worth)), self.given(rules)].sum())
        return (value - self.constant) / self.gain

    def better(self, rules: tuple[FoundRule, ...]) -> FoundRule | None:
        """Return the rule that improves most on others as an exception from them; None where none does."""
        now, some = self.given(rules), self.numbers
        gains = self.worth[:, self.options] - self.worth[np.arange(len(now)), now][:, None]
        most_of_each = np.maximum(gains, 0.0).sum(axis=0)
        most, found = -np.inf, None
        for column in np.argsort(-most_of_each, kind="stable").tolist():
            if most_of_each[column] - _PRICE * self.gain <= most:
                break  # no rule for this option, or for those after it, can improve more
            better = gains[:, column]
            # Pairs of the same people are equal on any processor, and the first of them is taken.
            joint = np.round((some * better) @ some.T / self.gain + _PRICE * np.eye(len(some)), _PLACES)
            for place in np.argsort(-joint, axis=None, kind="stable")[:_TRIED].tolist():
                pair = tuple(dict.fromkeys(divmod(place, len(some))))
                one, value = self._narrowed(pair, int(self.options[column]), better)
                net = value - _PRICE * self.gain * len(one.parts)
                if value >= _LEAST * self.gain and net > most + _NOTHING:
                    most, found = net, one
        return found

    def _narrowed(self, parts: tuple[int, ...], option: int, better: Array) -> tuple[FoundRule, float]:
        """Return the rule for those who are in all of some parts, and in more where that improves; and its value."""
        covers = np.asarray(self.parts[list(parts)].all(axis=0))
        value = float(better[covers].sum())
        while len(parts) < _PARTS_MAX:
            sums = self.numbers @ (better * covers)
            one = first_largest(sums)
            if sums[one] <= value + _NARROWER * self.gain:
                break
            parts, covers, value = (*parts, one), covers & self.parts[one], float(sums[one])
        return FoundRule(parts, option, covers), value

    def settled(self, rules: tuple[FoundRule, ...]) -> tuple[FoundRule, ...]:
        """Give everybody else the option that is best for them."""
        left = ~np.stack([one.covers for one in rules[:-1]]).any(axis=0)
        option = int(self.options[self.worth[left][:, self.options].sum(axis=0).argmax()])
        changed = (*rules[:-1], replace(rules[-1], option=option))
        return changed if self.kept(changed) > self.kept(rules) + _NOTHING else rules

    def pruned(self, rules: tuple[FoundRule, ...]) -> tuple[FoundRule, ...]:
        """Take out rules, and parts of rules, without which as much is kept, or enough."""
        for found in rules[:-1]:
            without = tuple(one for one in rules if one is not found)
            if self._is_as_good(without, rules):
                rules = without
        for place in range(len(rules) - 1):
            for part in rules[place].parts:
                rest = tuple(one for one in rules[place].parts if one != part)
                wider = replace(rules[place], parts=rest, covers=np.asarray(self.parts[list(rest)].all(axis=0)))
                changed = (*rules[:place], wider, *rules[place + 1 :])
                if rest and self._is_as_good(changed, rules):
                    rules = changed
        return rules

    def _is_as_good(self, rules: tuple[FoundRule, ...], before: tuple[FoundRule, ...]) -> bool:
        return self.kept(rules) >= min(self.enough, self.kept(before) - _NOTHING)

    def ordered(self, rules: tuple[FoundRule, ...]) -> tuple[FoundRule, ...]:
        """Put rules for more people first, where that changes nothing for anybody."""
        weights, made = [one.covers.sum() for one in rules], list(range(len(rules) - 1))
        for end in range(len(made) - 1, 0, -1):
            for place in range(end):
                one, other = made[place], made[place + 1]
                apart = not bool((rules[one].covers & rules[other].covers).any())
                if apart and weights[other] > weights[one]:
                    made[place], made[place + 1] = other, one
        return (*(rules[place] for place in made), rules[-1])
