"""What was made last of something, kept for when it is asked for again."""

from collections.abc import Callable
from typing import Generic, TypeVar

KeyT = TypeVar("KeyT")
ValueT = TypeVar("ValueT")


class Latest(Generic[KeyT, ValueT]):
    """A function of one thing that remembers what it returned last, and of what.

    Learning, policy, figures and answer of a round ask for the same things of the same state.

    make: the function. It is called again only for another object than last time.
    """

    def __init__(self, make: Callable[[KeyT], ValueT]) -> None:
        self._make = make
        self._kept: tuple[KeyT, ValueT] | None = None

    def __call__(self, key: KeyT) -> ValueT:
        """Return the function's value."""
        if self._kept is None or self._kept[0] is not key:
            self._kept = (key, self._make(key))
        return self._kept[1]
