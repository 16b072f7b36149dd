"""The exchange of a batch in shares with the learning server: opening, the leader's answer, and closing.

docs/privacy/split-exchange.md has the states. The closing, in which the helper's noise is, is stored before it leaves,
and the stored one is sent whatever happens later: the server gets one sum of a batch, with one noise.
"""

import asyncio
import hashlib
import sqlite3
from functools import cached_property
from importlib.util import find_spec
from typing import TYPE_CHECKING

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from privateer_core import errors
from privateer_core.wire.batch import CLOSING, OPENING, BatchAnswer, Purpose
from privateer_core.wire.publication import decode_publication, digest
from privateer_shuffler.metrics import ShufflerMetrics
from privateer_shuffler.pool.pool import Pool
from privateer_shuffler.upstream import Upstream

if TYPE_CHECKING:
    from privateer_shuffler.helper.helper import Helper

_OVER = BatchAnswer(0, {}, closed=True)


def check_helper() -> None:
    """Refuse rounds of votes in shares where the helper's libraries are not installed."""
    if find_spec("numpy") is None:
        remedy = "install privateer-shuffler[split]"
        raise errors.SpecError("the helper's libraries are not installed", field="privacy.model", remedy=remedy)


class ShareExchange:
    """The helper's side of the exchange, step by step: each is repeated until it succeeds, and none is done twice."""

    def __init__(self, upstream: Upstream, key: Ed25519PrivateKey, metrics: ShufflerMetrics) -> None:
        self._upstream, self._key, self._metrics = upstream, key, metrics

    @cached_property
    def _helper(self) -> "Helper":
        from privateer_shuffler.helper.helper import Helper  # what opens shares is loaded for the first of them

        return Helper(self._key)

    async def attempt(self, pool: Pool) -> BatchAnswer:
        """Bring a complete pool's batch to its end, from where it is; `Unavailable` if that fails for now."""
        try:
            closing = await pool.find_closing() or await self._decide(pool)
        except (OSError, sqlite3.Error) as error:
            pool.last_commit.record(is_durable=False)
            raise errors.Unavailable("the shuffler cannot store its sum", remedy="check its disk") from error
        except errors.Deleted:
            return _OVER
        except (errors.NotFound, errors.Untrusted) as error:
            raise errors.Unavailable(error.detail, remedy=error.remedy) from error
        if isinstance(closing, BatchAnswer):
            return closing
        return await self._upstream.deliver(
            pool.round.experiment, closing, await self._sign(CLOSING, closing), "/closings"
        )

    async def _decide(self, pool: Pool) -> bytes | BatchAnswer:
        """Return the stored closing of a batch after the leader's answer, or an answer to a batch that needs none."""
        publication = await self._upstream.fetch_publication(pool.round.experiment)
        assert publication is not None, "no known one was named"
        if digest(publication) != pool.header.digest:
            if decode_publication(publication).round.version > pool.round.version:
                return _OVER
            raise errors.Unavailable("the server shows another publication", remedy="ask its operator")
        batch = await pool.read_batch()
        opened = await asyncio.to_thread(self._helper.open_batch, publication, batch)
        if not opened.reports:
            refused = {errors.DecryptionFailed.slug: opened.n_unopened}
            self._metrics.count_refusals(refused)
            return BatchAnswer(0, refused, closed=False)
        signature = await self._sign(OPENING, opened.opening)
        answer = await self._upstream.open_batch(pool.round.experiment, opened.opening, signature)
        if answer is None:
            return _OVER
        opening_digest = hashlib.sha256(opened.opening).digest()
        closing = await asyncio.to_thread(self._helper.close_batch, opened, answer, opening_digest)
        return await pool.store_closing(closing)

    async def _sign(self, purpose: Purpose, body: bytes) -> str:
        return await asyncio.to_thread(purpose.sign, body, self._key)  # it expires after some minutes
