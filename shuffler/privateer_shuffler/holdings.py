"""What the shuffler asks of the place where it keeps reports: its own folder, or a database that replicas share."""

import asyncio
from collections.abc import Collection
from typing import NamedTuple, Protocol, Self

from privateer_core.serving.tokens import Admission
from privateer_core.wire.envelope import Header
from privateer_core.wire.publication import Round
from privateer_shuffler.label import Label
from privateer_shuffler.receipts import Receipt


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

    def hold(self, sealed: list[bytes], admission: Admission | None = None) -> asyncio.Future[Receipt]:
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


class Holdings(Protocol):
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
