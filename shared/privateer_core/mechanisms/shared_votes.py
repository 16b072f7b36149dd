"""Votes for cells in shares of two servers, each with noise of its own: means of keys, and hits of a few keys."""

from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

import msgspec
import numpy as np
from typing_extensions import override

from privateer_core.accounting.allotment import Allotment
from privateer_core.accounting.events import Event
from privateer_core.arrays import Array, Coins, Ints, NDArray, Records
from privateer_core.errors import SpecError
from privateer_core.mechanisms.mechanism import NO_KEY, Mechanism, check_valid, view_rows
from privateer_core.mechanisms.named_symbol import PartTotal
from privateer_core.mechanisms.server_noise import CELLS_MAX, STEPS, ServerNoise
from privateer_core.primitives.contributions import BERNSTEIN, BITS, CellHits, KeyedSums, KeyedValues, ValueParts
from privateer_core.primitives.public_coins import Layout
from privateer_core.primitives.questions import KeyedHits, KeyedMeans
from privateer_core.sampling.randomness import NoiseSource, RandomSource, round_shares_stochastically
from privateer_core.wire.shares import shared_report_size

if TYPE_CHECKING:
    from privateer_core.vdaf.prio3 import Prio3

_DIVIDED_VOTE: Final = 0xFFFF0001
"""Codepoint of a circuit that is not of the draft: the cells of a vote that is divided sum up to its unit."""
_LEVELS: Final = 255
"""Units of a vote that is divided among several cells: a number of a vote is a byte."""


class VotesTotal(PartTotal, frozen=True):
    """Votes in the clear, in units, and cells that two servers have joined, (P, keys, groups), in steps.

    Attributes
    ----------
    joined
        Sums of both servers' shares, with the helper's noise.
    n_joined
        Number of batches in them; each has the helper's noise once.
    """

    joined: Ints
    n_joined: int


def _vote_type(n_parts: int) -> np.dtype[Any]:
    return np.dtype([("slot", "<u4"), ("key", "<u4"), ("parts", "u1", (n_parts,))])


class SharedVotes(Mechanism, frozen=True):
    """Base class of votes: the parts of a value are a vote in the cells of the participant's key and group.

    A device sends the vote in shares, which prove that its numbers sum up to one vote (`prio3`). What two servers
    release is what `release` does with votes in the clear.

    Parameters
    ----------
    layout
        Keys and groups of the round; public coins decide the group, as under every trust model.

    Raises
    ------
    SpecError
        If a vote has more cells than the calibration allows, or there is no such noise.

    Notes
    -----
    Privacy cost: that of one server's noise for the cells of a replaced vote, which leaves cells by 1 in all and comes
    to others by 1. So no device moves the sums further than another, and counts of participants per key are free.
    """

    message: ClassVar = _vote_type(2)
    parts: ClassVar[ValueParts] = BITS
    unit: ClassVar[int] = 1
    """Sum of the numbers of a vote."""
    resolution: ClassVar[float] = 0.0
    """Variance of values up to which it may be due to rounding alone; 0 if the release has no variance."""

    layout: Layout

    def __post_init__(self) -> None:
        if self.n_cells > CELLS_MAX:
            detail = f"a vote would have more than {CELLS_MAX} cells"
            raise SpecError(detail, field="experiment.horizon", remedy="lower the horizon")
        _ = self.server_noise  # refuses parameters without noise

    @property
    def server_noise(self) -> ServerNoise:
        """The noise of each server."""
        raise NotImplementedError

    @property
    def n_parts(self) -> int:
        """Number of cells of a key and group."""
        return int(self.message["parts"].shape[0])

    @property
    def n_cells(self) -> int:
        """Number of cells of a vote: the last one is of participants without a key."""
        return self.n_parts * self.layout.keys * self.layout.groups + 1

    @property
    @override
    def release_event(self) -> Event:
        return self.server_noise.event

    @property
    @override
    def sampling(self) -> float:
        return self.server_noise.sampling

    @property
    def noise(self) -> float:
        """Variance of both servers' noise in each part of values, summed over the parts of covariates."""
        return self.n_parts / self.parts.count * self.server_noise.variance

    @cached_property
    def prio3(self) -> "Prio3":
        """Shares and proofs of votes: Prio3Histogram if a vote is undivided."""
        # Devices of other trust models make no shares, and need not load what does.
        from privateer_core.vdaf.circuits import simplex
        from privateer_core.vdaf.prio3 import HISTOGRAM, Prio3

        return Prio3(simplex(self.n_cells, self.unit), HISTOGRAM if self.unit == 1 else _DIVIDED_VOTE)

    @property
    @override
    def sent_size(self) -> int:
        return self.prio3.report_bytes

    @property
    @override
    def sealed_size(self) -> int:
        return shared_report_size(self.sent_size)

    @property
    @override
    def message_bits(self) -> int:
        return 8 * self.sent_size

    def encode(self, reports: Records) -> list[list[int]]:
        """Encode each vote as the bits of the circuit."""
        from privateer_core.vdaf.circuits import encode_number

        n_places, rows = self.layout.keys * self.layout.groups, []
        for place, parts in zip(self._locate_cells(reports).tolist(), reports["parts"].tolist(), strict=True):
            cells = range(place, self.n_cells - 1, n_places) if place >= 0 else (self.n_cells - 1,)
            numbers = dict(zip(cells, parts, strict=False))
            rows.append([bit for cell in range(self.n_cells) for bit in encode_number(numbers.get(cell, 0), self.unit)])
        return rows

    def randomize(self, contributions: KeyedValues, noise: NoiseSource) -> Records:
        """Return the votes of n participants, rounded to units at random; shape (n,), dtype ``message``."""
        has_key, votes = contributions.keys >= 0, np.zeros(len(contributions), dtype=self.message)
        votes["slot"] = contributions.coins
        votes["key"] = np.where(has_key, contributions.keys, NO_KEY)
        votes["parts"] = self._draw_parts(contributions, noise)
        votes["parts"][~has_key] = [self.unit, *[0] * (self.n_parts - 1)]
        return votes

    def _draw_parts(self, contributions: KeyedValues, source: RandomSource) -> Ints:
        """Return each vote's parts in whole units, (n, P), with the exact parts as their means."""
        return round_shares_stochastically(self._split(contributions), self.unit, source).T

    def _split(self, contributions: KeyedValues) -> Array:
        """Return the exact parts of values, (P, n), which are at least 0 and sum up to 1."""
        return np.stack([1 - contributions.values, contributions.values])

    @override
    def parse(self, rows: bytes) -> Records:
        votes = view_rows(rows, self.message)
        is_keyless = votes["key"] == NO_KEY
        check_valid(not np.any((votes["key"] >= self.layout.keys) & ~is_keyless), "not a key of this round")
        parts = votes["parts"].astype(np.int64)
        is_vote = (parts.sum(axis=1) == self.unit) & (~is_keyless | (parts[:, 0] == self.unit))
        check_valid(bool(is_vote.all()), "not one vote")
        return votes

    @override
    def empty(self) -> VotesTotal:
        cells = np.zeros((self.n_parts, self.layout.keys, self.layout.groups), np.int64)
        return VotesTotal(0, cells, np.zeros(cells.shape[1:], np.int64), cells, 0)

    @override
    def add(self, total: VotesTotal, reports: Records) -> VotesTotal:
        """Return ``total`` with the votes of reports added to the cells of their key and group, in units."""
        cells = self._count_votes(self._locate_cells(reports), reports["parts"])
        counts = self._count_coins(reports["slot"])
        return total.merge_with(VotesTotal(len(reports), cells, counts, np.zeros_like(cells), 0))

    def join(self, coins: Coins, cells: Ints) -> VotesTotal:
        """Return the total of a batch of votes in shares that both servers accepted.

        Parameters
        ----------
        coins
            The public coins of these votes, (n,).
        cells
            The sum of both servers' shares, in steps, with the helper's noise, as `join_shares` returns them.
        """
        empty = self.empty()
        joined = cells[:-1].reshape(empty.cells.shape)
        return VotesTotal(len(coins), empty.cells, self._count_coins(coins), joined, 1)

    def _count_coins(self, coins: Coins) -> Ints:
        """Return the participants by key and the group of their coins, (keys, groups)."""
        return np.full((self.layout.keys, 1), len(coins)) if self.layout.groups == 1 else self.layout.group_sizes(coins)

    def _locate_cells(self, reports: Records) -> Ints:
        """Return the index of each vote's key and group, (n,); -1 without a key."""
        has_key = reports["key"] != NO_KEY
        keys = np.where(has_key, reports["key"], 0).astype(np.int64)
        places = np.full(len(reports), -1, np.int64)
        slots, keys = reports["slot"][has_key], keys[has_key]
        places[has_key] = keys * self.layout.groups + self.layout.find_groups(self.layout.hashes(slots, keys), keys)
        return places

    def _count_votes(self, places: Ints, parts: NDArray[Any]) -> Ints:
        """Return the sums of parts, (P, keys, groups), by the index of their key and group."""
        sums, has_key = np.zeros((self.layout.keys * self.layout.groups, self.n_parts), np.int64), places >= 0
        np.add.at(sums, places[has_key], parts[has_key].astype(np.int64))
        return sums.T.reshape(self.n_parts, self.layout.keys, self.layout.groups)

    @override
    def release(self, total: VotesTotal, noise: NoiseSource) -> Any:
        """Return the release of a total, with the noise that it lacks: of both servers, or of the leader alone."""
        n_noises = 1 if total.n_joined else 2
        drawn = sum(self.server_noise.draw(total.cells.size, noise) for _ in range(n_noises))
        cells = self._to_steps(total.cells) + total.joined + np.reshape(drawn, total.cells.shape)
        return self._build_release(total, cells)

    def _to_steps(self, cells: Ints) -> Ints:
        return cells * (STEPS // self.unit)

    def _build_release(self, total: PartTotal, cells: Ints) -> Any:
        """Return the release of noisy cells in steps, (P, keys, groups)."""
        return self._build_hits(total, cells)

    def _build_hits(self, total: PartTotal, cells: Ints, **attributes: Any) -> CellHits:
        parameters = {"reports": total.reports, "counts": total.counts, "gain": 1.0, "other": 0.0, "noise": self.noise}
        return CellHits.from_parts(self.parts, cells, STEPS, **parameters, resolution=self.resolution, **attributes)

    def simulate(self, contributions: KeyedValues, rng: "np.random.Generator") -> Any:
        """Draw a release without hashing every (report, key); exact when the coins' hashes are independent."""
        places = np.where(contributions.keys < 0, -1, contributions.keys * self.layout.groups + contributions.groups)
        cells, keys = self._count_votes(places, self._draw_parts(contributions, rng)), self.layout.keys
        members = np.bincount(places[places >= 0], minlength=keys * self.layout.groups).reshape(keys, -1)
        others = rng.multinomial(len(contributions) - members.sum(axis=1), self.layout.shares)
        noisy = self._to_steps(cells) + self.server_noise.simulate(cells.size, rng).reshape(cells.shape)
        total = VotesTotal(len(contributions), cells, members + others, np.zeros_like(cells), 0)
        return self._build_release(total, noisy)


class SharedSums(SharedVotes, frozen=True, tag="shared-sums"):
    """Sums of scores 2 value - 1 and participants, per cell (key, group), from votes for a cell and a bit.

    Parameters
    ----------
    layout
        Keys and groups of the round.
    standard_deviation
        Standard deviation of each server's normal noise, in votes; 0: the noise is not normal.
    scale
        Scale of each server's discrete Laplace noise, in votes, for promises of delta 0; 0: the noise is not Laplace.
        One of both is above 0.
    """

    standard_deviation: float = 0.0
    scale: float = 0.0

    @classmethod
    def calibrated(cls, question: KeyedMeans, epsilon: float, delta: float, allotment: Allotment | None = None) -> Self:
        """Return the mechanism whose releases keep a promise for each server, or with an allotment a report's share."""
        noise = ServerNoise.calibrated(epsilon, delta, allotment)
        return cls(question.layout, noise.standard_deviation, noise.scale)

    @cached_property
    @override
    def server_noise(self) -> ServerNoise:
        return ServerNoise(self.standard_deviation, self.scale)

    @override
    def _build_release(self, total: PartTotal, cells: Ints) -> KeyedSums:
        return self._build_hits(total, cells).keyed_sums

    @classmethod
    @override
    def instances(cls) -> dict[str, Self]:
        layout = Layout.example()
        return {"normal-2": cls(layout, 2.0), "normal-12": cls(layout, 12.0), "laplace-2": cls(layout, 0.0, 2.0)}

    @override
    def with_less_noise(self, factor: float) -> Self:
        noise = {"standard_deviation": self.standard_deviation / factor, "scale": self.scale / factor}
        return msgspec.structs.replace(self, **noise)


class SharedPairs(SharedVotes, frozen=True, tag="shared-pairs"):
    """Hits of keys with value 1 and with value 0, from votes for a key and a bit.

    Parameters
    ----------
    layout
        Keys of the round.
    scale
        Scale of each server's discrete Laplace noise, in votes.
    """

    pure: ClassVar[bool] = True

    scale: float

    @classmethod
    def calibrated(cls, question: KeyedHits, epsilon: float) -> Self:
        """Return the mechanism whose releases are epsilon-private for each server."""
        return cls(Layout(question.layout.seed, question.layout.thresholds), ServerNoise.pure(epsilon).scale)

    @cached_property
    @override
    def server_noise(self) -> ServerNoise:
        return ServerNoise(scale=self.scale)

    def can_answer(self, question: KeyedHits) -> bool:
        """Whether a release answers the question: with the variance of values only if the question asks for it."""
        return question.expected is None

    @classmethod
    @override
    def instances(cls) -> dict[str, Self]:
        return {f"{scale:g}": cls(Layout.ungrouped(4, 5), scale) for scale in (1.0, 4.0)}

    @override
    def with_less_noise(self, factor: float) -> Self:
        return msgspec.structs.replace(self, scale=self.scale / factor)


class SharedTriples(SharedPairs, frozen=True, tag="shared-triples"):
    """Sums of (1 - r)^2, 2 r (1 - r) and r^2 of values r per key: a vote is divided among them; see `SharedPairs`."""

    message: ClassVar = _vote_type(3)
    parts: ClassVar[ValueParts] = BERNSTEIN
    unit: ClassVar[int] = _LEVELS
    resolution: ClassVar[float] = 1 / _LEVELS**2

    @override
    def _split(self, contributions: KeyedValues) -> Array:
        return _bernstein(contributions.values)

    @override
    def can_answer(self, question: KeyedHits) -> bool:
        return question.expected is not None and not question.has_covariate


class SharedProducts(SharedTriples, frozen=True, tag="shared-products"):
    """Sums per key of the products of a value's parts and a covariate's parts, which share a vote; see `SharedTriples`.

    The parts are ((1 - r)^2, 2 r (1 - r), r^2). Products also give the covariance of covariates and values.
    """

    message: ClassVar = _vote_type(9)

    @override
    def _split(self, contributions: KeyedValues) -> Array:
        numbers = np.full(len(contributions), 0.5) if contributions.numbers is None else contributions.numbers
        products = _bernstein(numbers)[:, None] * _bernstein(contributions.values)
        return products.reshape(-1, len(contributions))

    @override
    def _build_release(self, total: PartTotal, cells: Ints) -> CellHits:
        products = cells.reshape(self.parts.count, self.parts.count, *cells.shape[1:])
        return self._build_hits(total, products.sum(axis=0), products=products / STEPS)

    @override
    def can_answer(self, question: KeyedHits) -> bool:
        return question.expected is not None and question.has_covariate


def _bernstein(values: Array) -> Array:
    """Return the parts (1 - r)^2, 2 r (1 - r) and r^2 of values, (3, n)."""
    return np.stack([(1 - values) ** 2, 2 * values * (1 - values), values**2])
