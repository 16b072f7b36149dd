"""Operators' tokens with scopes and expiry. Only the SHA-256 of a token is stored on disk."""

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
ROOT_NAME: Final = "admin"
"""The name of the token in ``PRIVATEER_ADMIN_TOKEN``, which has all scopes and does not expire."""
_HEADER: Final = "Authorization"
_TOKEN_NAME: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")
_DIGEST_PATTERN: Final = re.compile(r"[0-9a-f]{64}")
_LOGGED_DIGEST_BYTES: Final = 4
_MAX_FILE_BYTES: Final = 1 << 20
_TIME_FORMAT: Final = "%Y-%m-%dT%H:%M:%SZ"
_log = logging.getLogger("privateer.admin")


class Scope(StrEnum):
    """A permission of a token."""

    READ = "read"  # read the private pages of an experiment: its log and its export
    CHANGE = "change"  # create experiments, change them, and release a shuffler's claim
    DELETE = "delete"  # erase an experiment for good
    BACKUP = "backup"  # fetch a copy of the database


def token_digest(token: str) -> bytes:
    """Return the SHA-256 of an admin token, from which a long random token cannot be guessed."""
    return hashlib.sha256(token.encode()).digest()


@dataclass(frozen=True)
class AdminToken:
    """The stored facts of a token."""

    name: str  # its owner or purpose
    scopes: frozenset[Scope]  # the permissions of its bearer
    digest: bytes  # the SHA-256 of the token
    expires: float | None  # its expiry, in seconds since 1970; None: never

    @classmethod
    def from_line(cls, line: str) -> "AdminToken":
        """Parse the token of a line; ValueError with what is wrong in it."""
        words = line.split()
        if len(words) != 4:
            raise ValueError("must be NAME SCOPES EXPIRES DIGEST, with a space between two of them")
        name, scopes, expires, digest = words
        if not _TOKEN_NAME.fullmatch(name) or name == ROOT_NAME:
            raise ValueError(f"needs a name of lower-case letters, digits and dashes other than {ROOT_NAME}")
        if not _DIGEST_PATTERN.fullmatch(digest):
            raise ValueError("must end with a SHA-256, 64 hexadecimal digits in lower case")
        return cls(name, parse_scopes(scopes.split(",")), bytes.fromhex(digest), _parse_time(expires))

    def to_line(self) -> str:
        """Return the line of a token that expires."""
        scopes = ",".join(scope for scope in Scope if scope in self.scopes)
        return f"{self.name} {scopes} {format_time(self.expires or 0)} {self.digest.hex()}"

    @property
    def log_name(self) -> str:
        """The token's name in logs, with enough digest bits to distinguish tokens and too few to guess one."""
        return f"{self.name} {self.digest[:_LOGGED_DIGEST_BYTES].hex()}"

    def admit(self, scope: Scope, now: float) -> str:
        """Return the token's name in logs, or refuse it if it has expired or lacks a scope."""
        if self.expires is not None and now >= self.expires:
            detail = f"the admin token {self.name} expired at {format_time(self.expires)}"
            raise AdminTokenExpired(detail, field=_HEADER, remedy=f"make another: privateer token new {self.name}")
        if scope not in self.scopes:
            detail = f"the admin token {self.name} does not have the scope {scope}"
            raise ScopeMissing(detail, scope, field=_HEADER, remedy=f"use a token that has the scope {scope}")
        return self.log_name


def parse_scopes(names: Iterable[str]) -> frozenset[Scope]:
    """Return the scopes with the given names; ValueError without names, or with an unknown one."""
    scope_names = list(names)
    if not scope_names or not all(name in list(Scope) for name in scope_names):
        raise ValueError(f"needs one or more of the scopes {', '.join(Scope)}")
    return frozenset(map(Scope, scope_names))


def create_token(name: str, scopes: Iterable[str], expires: float) -> tuple[str, AdminToken]:
    """Create a random token, and return it with its stored facts."""
    secret = secrets.token_hex(32)
    token = AdminToken(name, parse_scopes(scopes), token_digest(secret), expires)
    return secret, AdminToken.from_line(token.to_line())


def format_time(seconds: float) -> str:
    """Format a time in UTC as in token lines."""
    return datetime.fromtimestamp(seconds, UTC).strftime(_TIME_FORMAT)


def _parse_time(text: str) -> float:
    """Return the time of a token line in seconds since 1970, or raise an error if it is invalid."""
    try:
        return datetime.strptime(text, _TIME_FORMAT).replace(tzinfo=UTC).timestamp()
    except ValueError:
        raise ValueError("needs a time in UTC, such as 2027-01-31T00:00:00Z") from None


class TokenFile:
    """The tokens in a file, a line for each; empty lines and lines that begin with ``#`` are ignored.

    The file is read for each request that needs a token, so that changes are effective at once.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._cache: tuple[str | None, list[AdminToken]] = (None, [])

    def tokens(self) -> list[AdminToken]:
        """Return the current tokens. An invalid line is skipped, with a warning."""
        try:
            text = self._read()
        except (OSError, ValueError):
            if self._cache[0] is not None:
                _log.warning("%s cannot be read: none of its tokens holds", self._path.name)
            self._cache = None, []
            return []
        if text != self._cache[0]:
            tokens = list[AdminToken]()
            for number, token_or_error in _parse_lines(text):
                if isinstance(token_or_error, AdminToken):
                    tokens.append(token_or_error)
                else:
                    _log.warning("%s: line %d %s; it admits nobody", self._path.name, number, token_or_error)
            self._cache = text, tokens
        return self._cache[1]

    def check(self) -> list[AdminToken]:
        """Return the tokens, or raise an error if a line is invalid."""
        remedy = "make lines with privateer token new"
        try:
            text = self._read()
        except (OSError, ValueError):
            raise SpecError(f"{self._path.name} cannot be read", field=VARIABLE, remedy=remedy) from None
        numbered_tokens = list(_parse_lines(text))
        for number, token_or_error in numbered_tokens:
            if not isinstance(token_or_error, AdminToken):
                detail = f"{self._path.name}: line {number} {token_or_error}"
                raise SpecError(detail, field=VARIABLE, remedy="correct the line, or remove it")
        return [token for _, token in numbered_tokens if isinstance(token, AdminToken)]

    def _read(self) -> str:
        """Return the text of the file, or raise an error if it is too large or has other characters than tokens."""
        with self._path.open("rb") as file:
            raw = file.read(_MAX_FILE_BYTES + 1)
        if len(raw) > _MAX_FILE_BYTES:
            raise ValueError("too large")
        return raw.decode("ascii")


def _parse_lines(text: str) -> Iterator[tuple[int, AdminToken | str]]:
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() and not line.lstrip().startswith("#"):
            try:
                yield number, AdminToken.from_line(line)
            except ValueError as error:
                yield number, str(error)


class AdminTokens:
    """All tokens of a server: the tokens of a file, and the token with all scopes.

    root_digest: the digest of the token with all scopes; empty: no such token.
    path: the file; None: no file.
    """

    def __init__(self, root_digest: bytes, path: Path | None) -> None:
        self._root_tokens = [AdminToken(ROOT_NAME, frozenset(Scope), root_digest, None)] if root_digest else []
        self._file = TokenFile(path) if path else None
        if self._file:
            self._file.check()

    def authorize(self, token: str, scope: Scope, now: float) -> str:
        """Return the log name of a token, or refuse it if it is unknown, expired, or lacks a scope."""
        digest = token_digest(token)
        tokens = self._root_tokens + (self._file.tokens() if self._file else [])
        # All tokens are compared, each in constant time, so that the time reveals nothing.
        matches = [candidate for candidate in tokens if hmac.compare_digest(digest, candidate.digest)]
        if not matches:
            raise Unauthorized("the admin token is missing or wrong", remedy="send Authorization: Bearer TOKEN")
        return matches[0].admit(scope, now)
