"""A clock for tests."""


class Hands:
    """A clock that is set by hand: ``time`` passes, and ``step`` sets the time of day without any time passing."""

    def __init__(self) -> None:
        self.time, self._set = 1_000_000.0, 0.0

    def now(self) -> float:
        return self.time + self._set

    def monotonic(self) -> float:
        return self.time

    def step(self, seconds: float) -> None:
        self._set += seconds
