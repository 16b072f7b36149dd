"""Operators' tokens: what each may do, and until when. Of a token itself only its SHA-256 is anywhere on disk."""

import hashlib
import hmac
import logging
import re
import secrets
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Final

from privateer_core.errors import AdminTokenExpired, ScopeMissing, SpecError, Unauthorized

VARIABLE: Final = "PRIVATEER_ADMIN_TOKENS"
ROOT: Final = "admin"
"""The name of the token in ``PRIVATEER_ADMIN_TOKEN``, which may do everything and does not expire."""
_FIELD: Final = "Authorization"
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")
_SHOWN_BYTES: Final = 4
_BYTES_MAX: Final = 1 << 20
_TIME: Final = "%Y-%m-%dT%H:%M:%SZ"
_log = logging.getLogger("privateer.admin")


class Scope(StrEnum):
    """What a token may do."""

    READ = "read"
    """Read the pages of an experiment that strangers do not: its log and its export."""
    CHANGE = "change"
    """Create experiments, change them, and release a shuffler's claim."""
    DELETE = "delete"
    """Erase an experiment for good."""
    BACKUP = "backup"
    """Fetch a copy of the database."""


def token_digest(token: str) -> bytes:
    """Return what is kept of an admin token: nobody guesses a long random string from its SHA-256."""
    return hashlib.sha256(token.encode()).digest()


@dataclass(frozen=True)
class AdminToken:
    """A token as a server knows it."""

    name: str  # whose it is, or what it is for
    scopes: frozenset[Scope]  # what its bearer may do
    digest: bytes  # the SHA-256 of the token
    expires: float | None  # from when on it does nothing, in seconds since 1970; None: never

    @classmethod
    def read(cls, line: str) -> "AdminToken":
        """Return the token of a line."""
        parts = line.split()
        if len(parts) != 4:
            raise ValueError("must be NAME SCOPES EXPIRES DIGEST, with a space between two of them")
        name, scopes, expires, digest = parts
        if not _NAME.fullmatch(name) or name == ROOT:
            raise ValueError(f"needs a name of lower-case letters, digits and dashes other than {ROOT}")
        if not _DIGEST.fullmatch(digest):
            raise ValueError("must end with a SHA-256, 64 hexadecimal digits in lower case")
        return cls(name, scopes_of(scopes.split(",")), bytes.fromhex(digest), _read_time(expires))

    def line(self) -> str:
        """Return the line of a token that expires."""
        scopes = ",".join(one for one in Scope if one in self.scopes)
        return f"{self.name} {scopes} {shown_time(self.expires or 0)} {self.digest.hex()}"

    @property
    def shown(self) -> str:
        """How logs name it. So few bits of a digest tell an operator's tokens apart, and help nobody to find one."""
        return f"{self.name} {self.digest[:_SHOWN_BYTES].hex()}"

    def admit(self, scope: Scope, now: float) -> str:
        """Return how logs name the token, if it may do something now."""
        if self.expires is not None and now >= self.expires:
            detail = f"the admin token {self.name} expired at {shown_time(self.expires)}"
            raise AdminTokenExpired(detail, field=_FIELD, remedy=f"make another: privateer token new {self.name}")
        if scope not in self.scopes:
            detail = f"the admin token {self.name} does not have the scope {scope}"
            raise ScopeMissing(detail, scope, field=_FIELD, remedy=f"use a token that has the scope {scope}")
        return self.shown


def scopes_of(names: Iterable[str]) -> frozenset[Scope]:
    """Return the scopes of these names."""
    given = list(names)
    if not given or not all(one in list(Scope) for one in given):
        raise ValueError(f"needs one or more of the scopes {', '.join(Scope)}")
    return frozenset(map(Scope, given))


def new_token(name: str, scopes: Iterable[str], expires: float) -> tuple[str, AdminToken]:
    """Return a random token, and what a server knows of it."""
    secret = secrets.token_hex(32)
    made = AdminToken(name, scopes_of(scopes), token_digest(secret), expires)
    return secret, AdminToken.read(made.line())


def shown_time(at: float) -> str:
    """Return a time as lines have it, in UTC."""
    return datetime.fromtimestamp(at, UTC).strftime(_TIME)


def _read_time(text: str) -> float:
    try:
        return datetime.strptime(text, _TIME).replace(tzinfo=UTC).timestamp()
    except ValueError:
        raise ValueError("needs a time in UTC, such as 2027-01-31T00:00:00Z") from None


class TokenFile:
    """The tokens in a file, a line for each; empty lines and those that begin with ``#`` say nothing.

    It is read for each request that needs a token, so that what it says holds at once.

    path: the file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known: tuple[str | None, list[AdminToken]] = (None, [])

    def tokens(self) -> list[AdminToken]:
        """Return the tokens that are there now. A line that is none admits nobody, and is warned of once."""
        try:
            text = self._read()
        except (OSError, ValueError):
            if self._known[0] is not None:
                _log.warning("%s cannot be read: none of its tokens holds", self._path.name)
            self._known = None, []
            return []
        if text != self._known[0]:
            self._known = text, self._those(text)
        return self._known[1]

    def _those(self, text: str) -> list[AdminToken]:
        found = list[AdminToken]()
        for number, read in _lines(text):
            if isinstance(read, AdminToken):
                found.append(read)
            else:
                _log.warning("%s: line %d %s; it admits nobody", self._path.name, number, read)
        return found

    def check(self) -> list[AdminToken]:
        """Return the tokens, if every line is one."""
        make = "make lines with privateer token new"
        try:
            text = self._read()
        except (OSError, ValueError):
            raise SpecError(f"{self._path.name} cannot be read", field=VARIABLE, remedy=make) from None
        found = list(_lines(text))
        for number, read in found:
            if not isinstance(read, AdminToken):
                detail = f"{self._path.name}: line {number} {read}"
                raise SpecError(detail, field=VARIABLE, remedy="correct the line, or remove it")
        return [read for _, read in found if isinstance(read, AdminToken)]

    def _read(self) -> str:
        with self._path.open("rb") as file:
            raw = file.read(_BYTES_MAX + 1)
        if len(raw) > _BYTES_MAX:
            raise ValueError("too large")
        return raw.decode("ascii")


def _lines(text: str) -> Iterator[tuple[int, AdminToken | str]]:
    """Yield the number of each line with its token, or with what is wrong with it."""
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() and not line.lstrip().startswith("#"):
            try:
                yield number, AdminToken.read(line)
            except ValueError as error:
                yield number, str(error)


class AdminTokens:
    """All tokens of a server: those of a file, and the one with all scopes.

    root: the digest of the token with all scopes; empty: there is none.
    path: the file; None: there is none.
    """

    def __init__(self, root: bytes, path: Path | None) -> None:
        self._root = [AdminToken(ROOT, frozenset(Scope), root, None)] if root else []
        self._file = TokenFile(path) if path else None
        if self._file:
            self._file.check()

    def authorize(self, token: str, scope: Scope, now: float) -> str:
        """Return how logs name a token that may do something now."""
        given = token_digest(token)
        known = self._root + (self._file.tokens() if self._file else [])
        # All are compared, each in the same time, so the time tells nothing of any.
        found = [one for one in known if hmac.compare_digest(given, one.digest)]
        if not found:
            raise Unauthorized("the admin token is missing or wrong", remedy="send Authorization: Bearer TOKEN")
        return found[0].admit(scope, now)
