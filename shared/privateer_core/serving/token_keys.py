"""The issuers' public keys as a service knows them: from files or an issuer's own page, read anew now and then."""

import logging
import threading
import time
from collections.abc import Mapping
from http.client import HTTPException
from pathlib import Path
from typing import Final, NamedTuple
from urllib.request import Request, urlopen

from privateer_core.errors import Malformed, SpecError
from privateer_core.wire.token_keys import MEDIA_TYPE, Directory, TokenKey

_FRESH: Final = {True: 60.0, False: 1.0}
"""Seconds for which keys from a page, and from files, count without a new look."""
_BYTES: Final = 4 << 20
_SECONDS: Final = 10
_log = logging.getLogger("privateer.tokens")


class Issued(NamedTuple):
    """An experiment's issuer, and its keys, the newest first."""

    issuer: str
    keys: tuple[TokenKey, ...]


class TokenKeys:
    """The keys of all experiments.

    Parameters
    ----------
    source
        A file that an issuer writes, a folder of such ``*.json`` files, or the address of an issuer.

    Raises
    ------
    SpecError
        If it is an address of no web page, or two files have keys of the same experiment.
    """

    def __init__(self, source: str) -> None:
        self._is_page = "://" in source
        if self._is_page and not source.startswith(("https://", "http://")):
            detail = "is neither a folder nor the address of an issuer"
            raise SpecError(detail, field="PRIVATEER_TOKEN_KEYS", remedy="for example https://issuer.example")
        self._source, self._looked = source, -_FRESH[True]
        self._looking = threading.Lock()
        self._known: Mapping[str, Issued] = {}
        self._read_before: list[tuple[str, bytes]] = []
        self._warned: set[tuple[str, str]] = set()
        if not self._is_page:
            _merged(self._read_all(self._documents()))

    def all(self) -> Mapping[str, Issued]:
        """Return the keys by experiment. A page is asked in a thread of its own, and what was known holds meanwhile."""
        if time.monotonic() - self._looked > _FRESH[self._is_page] and self._looking.acquire(blocking=False):
            self._looked = time.monotonic()
            if self._is_page:
                threading.Thread(target=self._look, name="token keys", daemon=True).start()
            else:
                self._look()
        return self._known

    def _look(self) -> None:
        try:
            documents = self._documents()
            if documents != self._read_before:
                found = self._read_all(documents)
                if found or not self._is_page:  # a page that is away, or cut off, takes no keys back
                    self._read_before = documents
                    self._known = _merged(found)
        except SpecError as clash:  # a file has come since the start
            self._warn(self._source, f"counts as it was before: {clash.detail}")
        finally:
            self._looking.release()

    def _documents(self) -> list[tuple[str, bytes]]:
        try:
            if self._is_page:
                page = Request(f"{self._source.rstrip('/')}/token-keys", headers={"Accept": MEDIA_TYPE})  # noqa: S310
                with urlopen(page, timeout=_SECONDS) as answer:  # noqa: S310 - http or https, as checked
                    return [(self._source, answer.read(_BYTES))]
            path = Path(self._source)
            files = sorted(path.glob("*.json")) if path.is_dir() else [path]
            return [(file.name, file.read_bytes()) for file in files]
        except (OSError, ValueError, HTTPException):
            self._warn(self._source, "cannot be read")
            return []

    def _read_all(self, documents: list[tuple[str, bytes]]) -> dict[str, Mapping[str, Issued]]:
        """Return what each document shows that can be read."""
        read = {name: self._read(name, body) for name, body in documents}
        return {name: one for name, one in read.items() if one is not None}

    def _read(self, name: str, body: bytes) -> dict[str, Issued] | None:
        try:
            directory = Directory.decode(body)
            return {one: Issued(directory.issuer, tuple(directory.keys(one))) for one in directory.experiments}
        except Malformed:
            self._warn(name, "shows no token keys")
            return None

    def _warn(self, name: str, what: str) -> None:
        if (name, what) not in self._warned:
            _log.warning("%s %s", name, what)
        self._warned.add((name, what))


def _merged(found: Mapping[str, Mapping[str, Issued]]) -> Mapping[str, Issued]:
    """Return the keys of all documents by experiment.

    Raises
    ------
    SpecError
        If two have the same one: the keys of one issuer would take the place of the other's.
    """
    files = dict[str, str]()
    for file, issued in found.items():
        for name in issued:
            if files.setdefault(name, file) != file:
                detail = f"{files[name]} and {file} both have keys of {name}"
                remedy = "an experiment has one issuer: take it off the other one's PRIVATEER_EXPERIMENTS"
                raise SpecError(detail, field="PRIVATEER_TOKEN_KEYS", remedy=remedy)
    return {name: one for issued in found.values() for name, one in issued.items()}
