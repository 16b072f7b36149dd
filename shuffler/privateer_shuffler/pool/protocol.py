"""What the shuffler asks of the place where it keeps reports: its own folder, or a database that replicas share."""

import asyncio
from collections.abc import Collection, Sequence
from typing import NamedTuple, Protocol, Self

import msgspec

from privateer_core.errors import DuplicateReport, PrivateerError, Unavailable
from privateer_core.serving.token_gate import Admission
from privateer_core.wire.envelope import Header, header_of
from privateer_core.wire.publication import Round


class Label(msgspec.Struct, frozen=True, array_like=True):
    """Which round a database holds: its public facts and the digest of its publication."""

    round: Round
    digest: bytes

    @property
    def header(self) -> Header:
        """The header that all reports of the round share."""
        return header_of(self.round, self.digest)


class PoolReceipt(NamedTuple):
    """What became of the reports of a request: how many are held and were refused, by slug, and the first refusal."""

    accepted: int
    refused: dict[str, int]
    problem: PrivateerError | None

    @classmethod
    def of(cls, people: int, refusals: Sequence[PrivateerError]) -> "PoolReceipt":
        """Return the receipt of a request with the reports of so many people."""
        refused: dict[str, int] = {}
        for refusal in refusals:
            refused[refusal.slug] = refused.get(refusal.slug, 0) + 1
        return cls(people - len(refusals), refused, refusals[0] if refusals else None)


class WaitingUpload(NamedTuple):
    """A request: the sealed reports of people, and what admits it, if it must be admitted."""

    sealed: list[bytes]
    receipt: asyncio.Future[PoolReceipt]
    admission: Admission | None


def settle(group: Sequence[WaitingUpload], receipts: Sequence[PoolReceipt] | None) -> None:
    """Give requests their receipts; None: nothing is stored."""
    for index, request in enumerate(group):
        if request.receipt.done():  # the sender has hung up
            continue
        if receipts is None:
            request.receipt.set_exception(failure())
        else:
            request.receipt.set_result(receipts[index])


def duplicate() -> DuplicateReport:
    """Return the refusal of a report that is held, or was in an earlier batch."""
    return DuplicateReport("the report was accepted already", remedy="nothing to do")


def waiting() -> Unavailable:
    """Return the refusal of reports that come while a full batch is on its way. The server may ask for another."""
    return Unavailable("the batch of this version is full and on its way", remedy="send the same bytes again later")


def failure() -> Unavailable:
    """Return the refusal of reports that could not be stored."""
    return Unavailable("the shuffler cannot store reports", remedy="send the same bytes again later")


def in_tenths(people: int, batch: int) -> int:
    """Return a number of people rounded down to tenths of a batch, for the operator alone.

    A live count would reveal to whoever watches it when somebody reported, and so how long after fetching the policy.
    Tenths reveal it, too, to a stranger who fills the pool to just below one.
    """
    step = max(1, batch // 10)
    return people // step * step


class Taken(NamedTuple):
    """Version and digest of a publication, and whether it takes no further batch."""

    version: int
    digest: bytes
    over: bool = False


class RoundPool(Protocol):
    """The reports held for one round. Methods raise ``OSError`` or ``sqlite3.Error`` if what stores them fails.

    Attributes
    ----------
    failed
        Whether what was last written is not stored.
    """

    failed: bool

    @property
    def full_since(self) -> float:
        """When the pool was complete, in seconds since 1970; 0: it is not yet."""

    @property
    def round(self) -> Round:
        """The public facts of the round."""

    @property
    def header(self) -> Header:
        """The header that all reports of the round share."""

    @property
    def held(self) -> int:
        """Number of people whose reports are held."""

    @property
    def shown(self) -> int:
        """The same in tenths of a batch."""

    @property
    def full(self) -> bool:
        """Whether it takes no more reports."""

    def hold(self, sealed: list[bytes], admission: Admission | None = None) -> asyncio.Future[PoolReceipt]:
        """Take people's reports into the pool; the receipt comes when those accepted are durable."""

    async def complete(self) -> bool:
        """Wait until the pool is complete and this shuffler delivers it; false: another replica did, and it is over."""

    async def batch(self) -> bytes:
        """Return the batch of a complete pool as an encoded envelope, the same bytes every time."""

    async def renew(self) -> Self:
        """End this pool, and return an empty one for the same version that takes nothing that this one held."""

    async def forget(self) -> int:
        """End this pool and erase its reports; of how many people. 0: another replica did, or delivers them now."""

    async def close(self) -> None:
        """End this pool, and keep the reports."""


class PoolStore(Protocol):
    """Pools, and what is remembered beyond them. Methods raise ``OSError`` or ``sqlite3.Error`` if it fails.

    Attributes
    ----------
    shared
        Whether replicas share it, so that rounds appear which others have begun.
    """

    shared: bool

    def knows(self, nonce: bytes) -> bool:
        """Whether an upload token is known to be spent, at once; a pool decides when its report comes."""

    async def find(self, opened: Collection[bytes]) -> Collection[RoundPool]:
        """Open the rounds that are held but for those with these digests."""

    async def open(self, label: Label) -> RoundPool:
        """Make room for a round, of whose publication `note` took note.

        Raises
        ------
        RoundClosed
            If it is over meanwhile.
        """

    async def last(self, experiment: str) -> Taken | None:
        """Return the newest publication that reports were taken for."""

    async def note(self, experiment: str, taken: Taken) -> None:
        """Remember a publication unless a newer one is known; durable when this returns."""

    async def end(self, experiment: str, version: int) -> None:
        """Remember that a version takes no further batch; durable when this returns."""

    async def is_writable(self) -> bool:
        """Whether reports can be stored now."""

    async def tidy(self) -> None:
        """Forget now and then what is needed no more, until the task is cancelled."""

    def close(self) -> None:
        """Let go of everything; nothing here is used again."""
