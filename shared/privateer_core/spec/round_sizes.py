"""The public sizes of rounds, and how many people are in none of them."""

import math
from functools import lru_cache
from typing import NamedTuple


class RoundSizes(NamedTuple):
    """The rule that makes rounds as large as a spec says."""

    first: int  # reports of the first round, and the fewest of a later one that is not the last
    growth: float  # a later round has at least this share of the people seen so far
    fewest: int  # the fewest reports that keep the promise: a last round that is smaller is left out

    def batch(self, seen: int, people: int) -> int:
        """Return the people of the round after ``seen`` of so many ``people``; 0: there is none."""
        batch = max(0, min(max(self.first, math.floor(self.growth * seen)), people - seen))
        return batch if batch >= self.fewest else 0

    def largest(self, people: int) -> int:
        """Return the most people of any round: at most growth times the people before it, both at most ``people``."""
        return max(self.first, math.floor(self.growth / (1 + self.growth) * people))

    def out_of_reach(self, seen: int, people: int) -> int:
        """Return how many of the people after ``seen`` are in no round, if every report opens."""
        return _out_of_reach(self, seen, people)


@lru_cache(maxsize=1024)
def _out_of_reach(sizes: RoundSizes, seen: int, people: int) -> int:
    while batch := sizes.batch(seen, people):
        # Rounds of one size are taken in one step: there may be billions.
        alike = (people - seen) // batch
        if sizes.growth:
            alike = min(alike, int(((batch + 1) / sizes.growth - seen) // batch))
        seen += max(1, alike) * batch
    return max(0, people - seen)
