"""The key of the learning server: the one that the operator names, or the first that the shuffler has met."""

from pathlib import Path
from typing import Final

from privateer_core.errors import SpecError, Unavailable
from privateer_core.wire.identity import check_signed
from privateer_core.wire.keys import read_public_keys, write_public_key

PIN_FILE: Final = "server.pin"
"""Not ``*.pub``: nobody shall take it for a shuffler's key."""


class Pin:
    """Checks who signs publications.

    Parameters
    ----------
    folder
        Where the first key is kept.
    named
        The keys that the operator names; empty: the first one counts.

    Raises
    ------
    SpecError
        If the key that is kept cannot be read.
    """

    def __init__(self, folder: Path, named: frozenset[bytes]) -> None:
        self._path, self._known = folder / PIN_FILE, named
        if not named and self._path.exists():
            self._known = self._kept()

    def _kept(self) -> frozenset[bytes]:
        try:
            return frozenset(key.public_bytes_raw() for key in read_public_keys(self._path))
        except (OSError, ValueError):
            remedy = "name the server's key: PRIVATEER_SERVER_KEY"
            raise SpecError(f"{PIN_FILE} holds no key", field="PRIVATEER_DATA", remedy=remedy) from None

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
        if self._known:
            return
        try:
            write_public_key(key, self._path, 0o600)
        except OSError:
            detail = "the shuffler cannot keep the server's key"
            raise Unavailable(detail, remedy="its operator must check its disk") from None
        self._known = frozenset({key})
