"""Mechanisms whose message is a locally private symbol with its public coins."""

from typing import Any, ClassVar, Final, Self

import msgspec
import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from privateer_core.accounting.events import Event, Pure, ShuffledResponse
from privateer_core.arrays import Coins, Records
from privateer_core.mechanisms.mechanism import Mechanism, check_valid, view_rows
from privateer_core.sampling.entropy import NoiseSource
from privateer_core.sampling.response import RandomizedResponse, SubsetResponse

REPORT: Final = np.dtype([("slot", "<u4"), ("symbol", "<u2")])
BLOCK: Final = 1 << 18
"""Number of (report, key) pairs decoded at a time; keeps the working set in the processor's cache."""


class LocalSymbol(Mechanism, frozen=True):
    """Base class of mechanisms that protect a symbol by randomized response or subset selection.

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

    def __post_init__(self) -> None:
        _ = self.response  # refuses parameters without a randomizer

    @property
    def symbols(self) -> int:
        """Size of the alphabet."""
        return self.response.symbols

    @property
    @override
    def report_event(self) -> Event:
        return Pure(self.local_epsilon)

    @property
    @override
    def local_epsilon(self) -> float:
        return self.epsilon

    @override
    def batch_event(self, honest: int) -> Event:
        return ShuffledResponse(self.epsilon, self.symbols, honest)

    @override
    def parse(self, rows: bytes) -> Records:
        reports = view_rows(rows, REPORT)
        check_valid(not np.any(reports["symbol"] >= self.symbols), "not a symbol of this round's alphabet")
        return reports

    @override
    def release(self, total: Any, noise: NoiseSource) -> Any:
        return self._build_release(total)

    def _build_release(self, total: Any) -> Any:
        """Return the release of a total: a function of randomized reports alone, without further cost or noise."""
        raise NotImplementedError

    @override
    def with_less_noise(self, factor: float) -> Self:
        """Return the mechanism with ``factor`` times the epsilon."""
        return msgspec.structs.replace(self, epsilon=factor * self.epsilon)


def with_coins(coins: Coins, symbols: NDArray[np.integer]) -> Records:
    """Return the reports of n participants from their coins (n,) and symbols (n,); dtype `REPORT`."""
    reports = np.empty(len(coins), dtype=REPORT)
    reports["slot"], reports["symbol"] = coins, symbols
    return reports
