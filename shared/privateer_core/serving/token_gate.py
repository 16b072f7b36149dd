"""The gate of an endpoint that takes reports with upload tokens alone: it looks at headers, before a body is read.

The issuers' public keys come from files or an issuer's own page, and are read anew now and then.
"""

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Final, NamedTuple
from urllib.request import Request, urlopen

from privateer_core.clock import Clock, SystemClock
from privateer_core.errors import (
    Malformed,
    NotFound,
    SpecError,
    TokenElsewhere,
    TokenExpired,
    TokenInvalid,
    TokenMissing,
    TokenRefused,
    TokenSpent,
)
from privateer_core.wire.token import SCHEME, Challenge, Token, read_authorization
from privateer_core.wire.token_keys import MEDIA_TYPE, Directory, TokenKey

_FRESH: Final = {True: 60.0, False: 1.0}
"""Seconds for which keys from a page, and from files, count without a new look."""
_BYTES: Final = 4 << 20
_SECONDS: Final = 10
_log = logging.getLogger("privateer.tokens")
_FIELD: Final = "Authorization"
_EARLY_MAX: Final = 4096
_MINUTE: Final = 60.0
_ASKED_MAX: Final = 30
"""How often in a minute a spent token may come: a device that hears no answer tries eight times."""
_GET: Final = "get a token from the issuer"


IsSpent = Callable[[bytes, int], bool]
"""Whether a token with a nonce was spent whose key expires then, in seconds since 1970; it takes microseconds."""


def never_spent(_nonce: bytes, _expires: int) -> bool:
    """Return False: the endpoint decides when it counts the report."""
    return False


class Issued(NamedTuple):
    """An experiment's issuer, and its keys, the newest first."""

    issuer: str
    keys: tuple[TokenKey, ...]


class TokenKeys:
    """The keys of all experiments.

    source: a file that an issuer writes, a folder of such ``*.json`` files, or the address of an issuer.
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
    """Return the keys of all documents by experiment."""
    files = dict[str, str]()
    for file, issued in found.items():
        for name in issued:
            if files.setdefault(name, file) != file:
                detail = f"{files[name]} and {file} both have keys of {name}"
                remedy = "an experiment has one issuer: take it off the other one's PRIVATEER_EXPERIMENTS"
                raise SpecError(detail, field="PRIVATEER_TOKEN_KEYS", remedy=remedy)
    return {name: one for issued in found.values() for name, one in issued.items()}


@dataclass(frozen=True)
class Admission:
    """A token that may be spent once."""

    experiment: str  # what it is for
    nonce: bytes  # identifies it: random, and unknown to its issuer
    # when its key expires, in seconds since 1970. Until then the endpoint must remember that it was spent.
    expires: int
    # whether it was spent before. The report may be the same one again, and everything else is refused.
    is_spent: bool = False

    def check_for(self, experiment: str) -> None:
        """Refuse reports of another experiment."""
        if experiment != self.experiment:
            raise _elsewhere()

    def spent(self) -> TokenRefused:
        """Return the refusal of another report with the same token."""
        return TokenSpent("the upload token was spent before", field=_FIELD, remedy="get another one from the issuer")


class TokenGate:
    """Admits uploads with valid tokens.

    keys: the issuers' public keys.
    origins: the endpoint's names: host, and port unless it is 443.
    is_spent: what knows spent tokens.
    """

    def __init__(
        self,
        keys: TokenKeys,
        origins: Sequence[str],
        is_spent: IsSpent = never_spent,
        clock: Clock | None = None,
    ) -> None:
        self._keys, self._origins, self._is_spent = keys, origins, is_spent
        self._clock = clock or SystemClock()
        self._early: dict[bytes, Admission] = {}
        self._asked: Counter[bytes] = Counter()
        self._minute = -_MINUTE
        self._read: Mapping[str, Issued] | None = None
        self._experiments: dict[bytes, str] = {}
        self._challenges: dict[str, tuple[TokenKey | None, str]] = {}

    def admit(self, authorization: bytes | None, experiment: str = "") -> Admission:
        """Return what a request's ``Authorization`` admits, and name the experiment, if the address does."""
        try:
            admission = self._verified(authorization) or self._admission(authorization)
            admission.check_for(experiment or admission.experiment)
            return admission
        except TokenRefused as refused:
            refused.challenge = self.challenge(experiment)
            raise

    def admit_early(self, authorization: bytes | None, experiment: str = "") -> None:
        """Do the same for a request that is only beginning; `admit` then does not verify the token again."""
        admission = self.admit(authorization, experiment)
        if authorization is not None:
            if len(self._early) >= _EARLY_MAX:  # requests that ended before they were answered
                self._early.clear()
            self._early[authorization] = admission

    def _verified(self, authorization: bytes | None) -> Admission | None:
        """Return what the token of this request was found to admit when the request began."""
        early = self._early.pop(authorization, None) if authorization is not None else None
        return early if early and self._clock.now() < early.expires else None

    def _admission(self, authorization: bytes | None) -> Admission:
        if authorization is None:
            raise TokenMissing("reports come with an upload token here", field=_FIELD, remedy=_GET)
        token = read_authorization(authorization)
        known = self._known()
        name = self._experiments.get(token.challenge_digest)
        if name is None:
            raise _elsewhere()
        key = self._key(known[name], token)
        if self._is_spent(token.nonce, key.not_after):
            return self._asking(Admission(name, token.nonce, key.not_after, is_spent=True))
        if not token.is_signed(key):
            raise TokenInvalid("the issuer did not sign the upload token", field=_FIELD, remedy=_GET)
        return Admission(name, token.nonce, key.not_after)

    def _asking(self, spent: Admission) -> Admission:
        """Admit somebody who knows a spent token, to ask about the report that came with it; not without end."""
        now = self._clock.monotonic()
        if now - self._minute >= _MINUTE:
            self._minute, self._asked = now, Counter()
        self._asked[spent.nonce] += 1
        if self._asked[spent.nonce] > _ASKED_MAX:
            raise spent.spent()
        return spent

    def _key(self, issued: Issued, token: Token) -> TokenKey:
        key = next((one for one in issued.keys if one.id == token.key_id), None)
        if key is None:
            raise TokenInvalid("the upload token names no key of its issuer", field=_FIELD, remedy=_GET)
        if not key.is_valid(self._clock.now()):
            raise TokenExpired("the key of the upload token has expired", field=_FIELD, remedy=_GET)
        return key

    def _known(self) -> Mapping[str, Issued]:
        known = self._keys.all()
        if known is not self._read:
            self._experiments = {
                Challenge(issued.issuer, origin, name).digest: name
                for name, issued in known.items()
                for origin in self._origins
            }
            self._read = known
        return known

    def challenge(self, experiment: str) -> str:
        """Return the ``WWW-Authenticate`` that asks for a token of an experiment (RFC 9577, section 2.1)."""
        issued, now = self._known().get(experiment), self._clock.now()
        valid = issued and next((key for key in issued.keys if key.is_valid(now)), None)
        if not issued or not valid:
            return SCHEME
        key, text = self._challenges.get(experiment, (None, ""))
        if key is not valid:
            text = Challenge(issued.issuer, self._origins[0], experiment).header(valid)
            self._challenges[experiment] = valid, text
        return text

    def directory(self, experiment: str) -> Directory:
        """Return what a device must know to get tokens of an experiment."""
        issued = self._known().get(experiment)
        if issued is None:
            raise NotFound("no token key is known for this experiment", field="name", remedy="check its spelling")
        return Directory.of(issued.issuer, {experiment: list(issued.keys)})


def _elsewhere() -> TokenRefused:
    detail = "the upload token is for another experiment, endpoint or issuer"
    return TokenElsewhere(detail, field=_FIELD, remedy=_GET)
