"""Mechanisms whose message is one symbol, randomized so that it is private by itself, beside its coins."""

from typing import Any, ClassVar, Final, Self

import msgspec
import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from privateer_core.accounting.events import Event, Pure
from privateer_core.mechanisms.mechanism import Mechanism, check_range, whole
from privateer_core.sampling.entropy import NoiseSource
from privateer_core.sampling.response import RandomizedResponse, SubsetResponse

REPORT: Final = np.dtype([("slot", "<u4"), ("symbol", "<u2")])
BLOCK: Final = 1 << 18
"""(report, key) pairs decoded at a time; keeps the working set in the processor's cache."""


class LocalSymbol(Mechanism, frozen=True):
    """A symbol that randomized response or subset selection protects.

    A subclass has a field ``epsilon``, the pure local privacy of a message, and its ``response``, the randomizer of the
    symbol, whose probabilities also debias.
    """

    message: ClassVar = REPORT
    pure: ClassVar[bool] = True

    @property
    def epsilon(self) -> float:
        """Pure local privacy of a message."""
        raise NotImplementedError

    @property
    def response(self) -> RandomizedResponse | SubsetResponse:
        """The randomizer of the symbol; its probabilities also debias."""
        raise NotImplementedError

    @property
    @override
    def alone(self) -> Event:
        return Pure(self.local_epsilon)

    @property
    @override
    def local_epsilon(self) -> float:
        return self.epsilon

    @override
    def parse(self, rows: bytes) -> NDArray[np.void]:
        reports = whole(rows, REPORT)
        check_range(not np.any(reports["symbol"] >= self.response.symbols), "not a symbol of this round's alphabet")
        return reports

    @override
    def release(self, total: Any, noise: NoiseSource) -> Any:
        return self._released(total)

    def _released(self, total: Any) -> Any:
        """Return what the learner may see: a function of randomized reports alone, without further cost or noise."""
        raise NotImplementedError

    @override
    def weaker(self, factor: float) -> Self:
        """Return the mechanism with ``factor`` times the epsilon."""
        return msgspec.structs.replace(self, epsilon=factor * self.epsilon)


def with_coins(coins: NDArray[np.uint32], symbols: NDArray[np.integer]) -> NDArray[np.void]:
    """Return the reports of n people, their coins (n,) beside their symbols (n,); dtype `REPORT`."""
    reports = np.empty(len(coins), dtype=REPORT)
    reports["slot"], reports["symbol"] = coins, symbols
    return reports
