"""The key of the learning server, which replicas know together."""

from privateer_core.errors import Unavailable
from privateer_core.serving.postgres.pool import Pool, Unreachable, row, run
from privateer_core.wire.identity import check_signed


class SharedPin:
    """Checks who signs publications, as `privateer_shuffler.pin.Pin` does; the first key that a replica meets counts.

    Parameters
    ----------
    named
        The keys that the operator names; empty: the first one counts.
    """

    def __init__(self, pool: Pool, named: frozenset[bytes]) -> None:
        self._pool, self._known = pool, named
        if not named:
            with pool.connection() as db:
                found = row(db, "SELECT public_key FROM server")
            self._known = frozenset(found or ())

    def check(self, signed: str, body: bytes) -> None:
        """Refuse a publication that the server has not signed; the first key becomes the known one.

        Raises
        ------
        SignatureInvalid, KeyChanged
            If it is not signed, or by another key.
        Unavailable
            If the key cannot be kept.
        """
        key = check_signed(signed, body, self._known)
        if not self._known:
            self._known = frozenset({self._kept(key)})
            check_signed(signed, body, self._known)  # another replica may have met another server

    def _kept(self, key: bytes) -> bytes:
        try:
            with self._pool.transaction() as db:
                run(db, "INSERT INTO server VALUES (1, %s) ON CONFLICT DO NOTHING", key)
                found = row(db, "SELECT public_key FROM server")
        except Unreachable:
            detail = "the shuffler cannot keep the server's key"
            raise Unavailable(detail, remedy="its operator must check its database") from None
        assert found is not None, "it has just been put there"
        return bytes(found[0])
