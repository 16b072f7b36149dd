"""What to expect of an experiment, in sentences: what it earns, when it pays, and what would change that."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from privateer_core.privacy.trust import TRUST
from privateer_lab.planning.expectation.choices import Kind, listed
from privateer_lab.planning.expectation.expected import Expectation, ExpectedRow


def sentences(found: Expectation) -> list[str]:
    """Return what somebody who plans an experiment wants to know first, the answer at the beginning."""
    return list(_Words(found).all())


def shown(found: Expectation) -> "Unit":
    """Return how rewards are written where these are compared."""
    gains = [abs(row.gain) for row in found.rows] + [found.best - found.single, found.single - found.random]
    return Unit(found.is_rate, max(gains))


@dataclass(frozen=True)
class Unit:
    """How rewards are written: rates in percent, others as they are, with digits that tell ``differences`` apart."""

    is_rate: bool
    differences: float

    def write(self, value: float) -> str:
        """Write a mean reward."""
        return f"{self._number(value)} %" if self.is_rate else self._number(value)

    def margin(self, half: float | None) -> str:
        """Write half of an interval; nothing if there is none."""
        return "" if half is None else f"± {self._number(half)}"

    def points(self, difference: float) -> str:
        """Write a difference."""
        return f"{self._number(difference)} points" if self.is_rate else self._number(difference)

    def _number(self, value: float) -> str:
        times = 100 if self.is_rate else 1
        size = self.differences * times
        digits = 1 - math.floor(math.log10(size)) if size > 0 else 2
        return f"{times * value:z,.{min(6, max(int(self.is_rate), digits))}f}"


class _Words:
    def __init__(self, found: Expectation) -> None:
        self._found, self._own, self._unit = found, found.own, shown(found)

    def all(self) -> Iterator[str]:
        yield self._while_it_runs() if self._found.is_test else self._headline()
        if self._found.by_context and not self._found.is_test:
            yield from self._when()
            yield from self._features()
        if not self._found.is_test:
            yield from self._trust()
            yield from self._algorithms()
        yield from self._listed("epsilon", "At ")
        yield from self._listed("people", "With ")
        yield from self._rounds()
        yield from self._reach()
        yield from self._sure()
        yield from self._people()

    def _of(self, kind: Kind) -> list[ExpectedRow]:
        return [row for row in self._found.rows if row.kind == kind]

    def _value(self, row: ExpectedRow) -> str:
        return self._unit.write(row.value)

    def _while_it_runs(self) -> str:
        own, write = self._own, self._unit.write
        best, random = write(self._found.single), write(self._found.random)
        if self._found.is_tie:
            return f"While it runs people can expect {write(own.value)}, and {best} with any option: all are equal."
        return (
            f"While it runs people can expect {write(own.value)}; {best} with the best option, "
            f"{self._found.single_option!r}, and {random} with options at random."
        )

    def _headline(self) -> str:
        own, found = self._own, self._found
        what = "a success rate" if found.is_rate else "a mean reward"
        called = f" ({found.reward})" if found.reward else ""
        margin = f" ({self._unit.margin(own.margin)})" if own.margin is not None else ""
        with_whom = f"With {own.people:,} {found.counts}, {_promise(own)} you can expect"
        single = f"{self._unit.write(found.single)} with the best single option, {found.single_option!r}"
        expected = f"{what}{called} of {self._value(own)}{margin}"
        if not found.by_context:
            return f"{with_whom} {expected}. {self._alike()}"
        end = self._unit.write(own.value_at_the_end)
        if found.gains_late(own):
            return (
                f"{with_whom} {expected}, {_no(own)} gain{self._so_far(own)} above {single}; by the end it is {end}, "
                "so choosing by context pays for people who come later."
            )
        if not own.gains:
            gain = f"{_no(own)} gain from choosing by context{self._so_far(own)}"
            instead = "" if self._gaining() else _test(own, self._unit)
            return f"{with_whom} {gain}: {expected}, and {single}.{instead}"
        return f"{with_whom} {expected} instead of {single}; by the end it is {end}."

    def _alike(self) -> str:
        """Say what options have where one is best for all, and that features can gain nothing then."""
        found, write = self._found, self._unit.write
        if found.is_tie:
            return f"All options are equal: each has {write(found.single)}."
        best = f"The best option, {found.single_option!r}, has {write(found.single)}"
        instead = f" It is best for all of these people.{_test(self._own, self._unit)}" if found.is_contextual else ""
        return f"{best}, and options at random have {write(found.random)}.{instead}"

    def _reached(self, row: ExpectedRow) -> str:
        """Write what a change earns: at least that, where its runs were cut short; and whether that may be chance."""
        level = ", level with the spec but for chance" if self._found.compared(row) == "level" else ""
        return f"{self._value(row)}{' or more' if row.is_cut_short else ''}{level}"

    def _so_far(self, row: ExpectedRow) -> str:
        return f" within the first {row.learned_from:,} people" if row.is_cut_short else ""

    def _gaining(self) -> bool:
        """Whether choosing by context gains with fewer features, or with another algorithm or other rounds."""
        rows = [*self._of("features"), *self._of("algorithm"), *self._of("rounds")]
        return any(row.gains and self._found.compared(row) == "better" for row in rows)

    def _when(self) -> Iterator[str]:
        if self._own.gains and self._own.pays_after is not None:
            yield f"It takes about {_about(self._own.pays_after)} {self._found.counts} until choosing by context pays."

    def _features(self) -> Iterator[str]:
        rows = self._of("features")
        if not rows:
            return
        best = max(rows, key=lambda row: row.value)
        compared, named = self._found.compared(best), listed(best.features)
        said = f"With {named} alone{best.change.removeprefix(named)}: {self._value(best)}"
        above = f", {self._unit.points(best.gain)} above {self._found.single_option!r}"
        gain = above if best.gains and not self._own.gains else ""
        ends = {
            "better": f"{gain}. The other features cost more than they tell.",
            "worse": ". The other features are worth it.",
            # Where nothing is gained by any features, chance hides what each of them tells.
            "level": f", the same but for chance{': the other features tell little' if self._own.gains else ''}.",
        }
        yield said + ends.get(compared, ".")

    def _trust(self) -> Iterator[str]:
        for row in self._of("trust"):
            named = f"Under {row.change}" if row.epsilon is not None else "Without privacy"
            if row.gains or not self._found.by_context:
                yield f"{named}: {self._reached(row)}."
            elif self._found.gains_late(row):
                end = self._unit.write(row.value_at_the_end)
                yield f"{named}: {self._value(row)}, {_no(row)} gain{self._so_far(row)}, and {end} by the end."
            elif row.gain > 0:
                yield f"{named}: {self._value(row)}, a gain that may be chance{self._so_far(row)}."
            else:
                yield f"{named}: no gain{self._so_far(row)}.{_test(row, self._unit)}"

    def _listed(self, kind: Kind, start: str) -> Iterator[str]:
        if rows := self._of(kind):
            yield start + "; ".join(f"{row.change}: {self._reached(row)}" for row in rows) + "."

    def _algorithms(self) -> Iterator[str]:
        rows = self._of("algorithm")
        if not rows:
            return
        best = max(rows, key=lambda row: row.value)
        if self._found.compared(best) == "better":
            named = f"{best.change!r}{'' if best.features else ' and without [context.features]'}"
            yield f"With algorithm.name = {named}: {self._value(best)}, which is better for these people."
        else:
            told = "; ".join(f"{row.change!r}: {self._value(row)}" for row in rows)
            yield f"Other algorithms{self._no_better(best)} ({told})."

    def _no_better(self, best: ExpectedRow) -> str:
        """Say that the best of some changes is no better, if there are runs enough to say so."""
        return " are no better" if self._found.compared(best) else ", of which one run each says little"

    def _rounds(self) -> Iterator[str]:
        rows = self._of("rounds")
        if not rows:
            return
        best = max(rows, key=lambda row: row.value)
        if self._found.compared(best) == "better":
            yield f"With {best.change}: {self._value(best)}."
        else:
            yield f"Rounds of other sizes{self._no_better(best)} ({', '.join(row.change for row in rows)})."

    def _reach(self) -> Iterator[str]:
        people = self._found.people
        if people.out_of_reach:
            yield f"{people.sentence} A horizon of {people.reachable:,} fills its rounds."
        if self._own.reach < people.reachable:
            yield f"A run asks {self._own.reach:,} of the {people.reachable:,} people whom its rounds could reach."

    def _sure(self) -> Iterator[str]:
        rows = self._found.rows
        few, many = min(row.runs for row in rows), max(row.runs for row in rows)
        runs = f"{many} run{'s' * (many > 1)}" if few == many else f"{few} to {many} runs"
        if self._own.margin is None:
            yield f"Each figure is from {runs}, which is too few to say how sure it is."
        else:
            yield f"Each figure is from {runs}. ± is what chance does to it, in about 19 of 20 cases."
        if self._found.left_out:
            yield f"There was no time for: {'; '.join(self._found.left_out)}. --seconds gives more."
        if cut := [row for row in rows if row.is_cut_short]:
            are = "is" if len(cut) == 1 else "are"
            least = min(cut, key=lambda row: row.learned_from / row.reach)
            yield (
                f"{len(cut)} of {len(rows)} figures {are} from runs that were cut short for time, the shortest after "
                f"{least.learned_from:,} of {least.reach:,} people: later ones get what was learned by "
                "then, so more is possible. --seconds looks further, and --seeds runs all to their end."
            )

    def _people(self) -> Iterator[str]:
        if self._found.is_made_up:
            yield (
                f"These people are made up ([population] name = {self._found.population!r}): figures of yours will "
                "differ. `privateer spec-from data.csv` makes people from rows of your own."
            )


def _promise(row: ExpectedRow) -> str:
    """Say what is promised, and who is trusted."""
    trust = TRUST[row.model]
    if row.epsilon is None:
        return "and no privacy"
    who = "a curator" if trust.curated else "a shuffler" if trust.batched else "no trust in anybody"
    return f"epsilon {row.epsilon:g} and {who}"


def _no(row: ExpectedRow) -> str:
    return "no sure" if row.gain > 0 else "no"


def _test(row: ExpectedRow, unit: Unit) -> str:
    """Say what to do where nothing is gained by context; of rates it is known whether a test finds anything."""
    if row.detectable is None and unit.is_rate:
        return " A test of so few finds no difference either: raise the number of people or epsilon."
    found = "" if row.detectable is None else f" (detectable: {unit.points(row.detectable)})"
    return f" Test one option against another instead{found}."


def _about(people: int) -> str:
    """Write a number with two digits."""
    return f"{float(f'{people:.2g}'):,.0f}"
