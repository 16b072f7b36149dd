"""The gate of an endpoint that requires upload tokens: it verifies the token in the headers, before a body is read.

The issuers' public keys come from files or an issuer's page, and are reloaded regularly.
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
    TokenExpired,
    TokenInvalid,
    TokenMissing,
    TokenRefused,
    TokenSpent,
    TokenWrongAudience,
)
from privateer_core.wire.token import SCHEME, Challenge, Token, read_authorization
from privateer_core.wire.token_keys import MEDIA_TYPE, Directory, TokenKey

_FRESH_SECONDS: Final = {True: 60.0, False: 1.0}
"""Seconds for which keys are cached, by whether they come from a page."""
_PAGE_BYTES_MAX: Final = 4 << 20
_TIMEOUT_SECONDS: Final = 10
_log = logging.getLogger("privateer.tokens")
_FIELD: Final = "Authorization"
_EARLY_ADMISSIONS_MAX: Final = 4096
_MINUTE_SECONDS: Final = 60.0
_SPENT_QUERIES_MAX: Final = 30
"""Number of requests with the same spent token in a minute; a device without an answer retries eight times."""
_GET_REMEDY: Final = "get a token from the issuer"
IsSpent = Callable[[bytes, int], bool]
"""Whether a token was spent, by its nonce and its key's expiry in seconds since 1970; it takes microseconds."""


def is_never_spent(_nonce: bytes, _expires: int) -> bool:
    """Return False, since the endpoint checks for spent tokens when it counts the report."""
    return False


class IssuerKeys(NamedTuple):
    """An experiment's issuer and its keys, the newest first."""

    issuer: str
    keys: tuple[TokenKey, ...]


class TokenKeys:
    """The token keys of all experiments.

    source: a file that an issuer writes, a folder of such ``*.json`` files, or the URL of an issuer.
    """

    def __init__(self, source: str) -> None:
        self._is_page = "://" in source
        if self._is_page and not source.startswith(("https://", "http://")):
            detail = "is neither a folder nor the address of an issuer"
            raise SpecError(detail, field="PRIVATEER_TOKEN_KEYS", remedy="for example https://issuer.example")
        self._source, self._read_at = source, -_FRESH_SECONDS[True]
        self._load_lock = threading.Lock()
        self._keys_by_experiment: Mapping[str, IssuerKeys] = {}
        self._last_documents: list[tuple[str, bytes]] = []
        self._warned: set[tuple[str, str]] = set()
        if not self._is_page:
            _merge_keys(self._parse_documents(self._read_documents()))

    def all(self) -> Mapping[str, IssuerKeys]:
        """Return the cached keys by experiment, and reload them if they are old: files now, a page in a thread."""
        if time.monotonic() - self._read_at > _FRESH_SECONDS[self._is_page] and self._load_lock.acquire(blocking=False):
            self._read_at = time.monotonic()
            if self._is_page:
                threading.Thread(target=self._reload, name="token keys", daemon=True).start()
            else:
                self._reload()
        return self._keys_by_experiment

    def _reload(self) -> None:
        """Read the documents again and keep their keys, or log why the keys before count; free the lock."""
        try:
            documents = self._read_documents()
            if documents != self._last_documents:
                keys_by_file = self._parse_documents(documents)
                if keys_by_file or not self._is_page:  # a page that is away, or cut off, takes no keys back
                    self._last_documents = documents
                    self._keys_by_experiment = _merge_keys(keys_by_file)
        except SpecError as error:  # a file has come since the start
            self._warn_once(self._source, f"counts as it was before: {error.detail}")
        finally:
            self._load_lock.release()

    def _read_documents(self) -> list[tuple[str, bytes]]:
        """Return name and bytes of each document; log one that cannot be read, and return none then."""
        try:
            if self._is_page:
                page = Request(f"{self._source.rstrip('/')}/token-keys", headers={"Accept": MEDIA_TYPE})  # noqa: S310
                with urlopen(page, timeout=_TIMEOUT_SECONDS) as answer:  # noqa: S310 - http or https, as checked
                    return [(self._source, answer.read(_PAGE_BYTES_MAX))]
            path = Path(self._source)
            files = sorted(path.glob("*.json")) if path.is_dir() else [path]
            return [(file.name, file.read_bytes()) for file in files]
        except (OSError, ValueError, HTTPException):
            self._warn_once(self._source, "cannot be read")
            return []

    def _parse_documents(self, documents: list[tuple[str, bytes]]) -> dict[str, Mapping[str, IssuerKeys]]:
        """Parse the documents, and return the keys of the valid documents by name."""
        parsed = {name: self._parse_document(name, body) for name, body in documents}
        return {name: keys for name, keys in parsed.items() if keys is not None}

    def _parse_document(self, source: str, body: bytes) -> dict[str, IssuerKeys] | None:
        """Return a document's keys by experiment; log a document without keys, and return None."""
        try:
            directory = Directory.decode(body)
            return {name: IssuerKeys(directory.issuer, tuple(directory.keys(name))) for name in directory.experiments}
        except Malformed:
            self._warn_once(source, "shows no token keys")
            return None

    def _warn_once(self, name: str, problem: str) -> None:
        if (name, problem) not in self._warned:
            _log.warning("%s %s", name, problem)
        self._warned.add((name, problem))


def _merge_keys(keys_by_file: Mapping[str, Mapping[str, IssuerKeys]]) -> Mapping[str, IssuerKeys]:
    """Merge the keys of all documents by experiment, and refuse an experiment with keys in two documents."""
    files = dict[str, str]()
    for file, experiments in keys_by_file.items():
        for name in experiments:
            if files.setdefault(name, file) != file:
                detail = f"{files[name]} and {file} both have keys of {name}"
                remedy = "an experiment has one issuer: take it off the other one's PRIVATEER_EXPERIMENTS"
                raise SpecError(detail, field="PRIVATEER_TOKEN_KEYS", remedy=remedy)
    return {name: keys for experiments in keys_by_file.values() for name, keys in experiments.items()}


@dataclass(frozen=True)
class Admission:
    """The admission of an upload by a token, which may be spent once."""

    experiment: str  # the experiment of the token
    nonce: bytes  # identifies the token: random, and unknown to its issuer
    # expiry of its key, in seconds since 1970. Until then the endpoint must remember that the token was spent.
    expires: int
    is_spent: bool = False  # whether it was spent before. Then only the same report may come again.

    def check_for(self, experiment: str) -> None:
        """Refuse an experiment that the token is not for."""
        if experiment != self.experiment:
            raise _elsewhere_error()

    def spent_error(self) -> TokenRefused:
        """Return the error about another report with the same token."""
        return TokenSpent("the upload token was spent before", field=_FIELD, remedy="get another one from the issuer")


class TokenGate:
    """A gate that admits uploads with valid tokens.

    origins: the endpoint's names: host, and port unless it is 443.
    """

    def __init__(
        self, keys: TokenKeys, origins: Sequence[str], is_spent: IsSpent = is_never_spent, clock: Clock | None = None
    ) -> None:
        self._keys, self._origins, self._is_spent = keys, origins, is_spent
        self._clock = clock or SystemClock()
        self._early_admissions: dict[bytes, Admission] = {}
        self._n_spent_queries: Counter[bytes] = Counter()
        self._minute_start = -_MINUTE_SECONDS
        self._last_keys: Mapping[str, IssuerKeys] | None = None
        self._experiments: dict[bytes, str] = {}
        self._challenges: dict[str, tuple[TokenKey | None, str]] = {}

    def admit(self, authorization: bytes | None, experiment: str = "") -> Admission:
        """Return the admission by a request's token for the experiment in its path, or refuse it with a challenge."""
        try:
            admission = self._pop_early_admission(authorization) or self._verify_token(authorization)
            admission.check_for(experiment or admission.experiment)
            return admission
        except TokenRefused as error:
            error.challenge = self.challenge(experiment)
            raise

    def admit_early(self, authorization: bytes | None, experiment: str = "") -> None:
        """Verify the token of a request that is just starting, so that `admit` need not verify it again."""
        admission = self.admit(authorization, experiment)
        if authorization is not None:
            if len(self._early_admissions) >= _EARLY_ADMISSIONS_MAX:  # requests that ended before they were answered
                self._early_admissions.clear()
            self._early_admissions[authorization] = admission

    def _pop_early_admission(self, authorization: bytes | None) -> Admission | None:
        """Return the admission that `admit_early` stored for this token; None if there is none."""
        early = self._early_admissions.pop(authorization, None) if authorization is not None else None
        return early if early and self._clock.now() < early.expires else None

    def _verify_token(self, authorization: bytes | None) -> Admission:
        """Return the admission by a token that is signed, valid and for an experiment here; refuse others."""
        if authorization is None:
            raise TokenMissing("reports come with an upload token here", field=_FIELD, remedy=_GET_REMEDY)
        token = read_authorization(authorization)
        keys_by_experiment = self._refresh_keys()
        name = self._experiments.get(token.challenge_digest)
        if name is None:
            raise _elsewhere_error()
        key = self._find_key(keys_by_experiment[name], token)
        if self._is_spent(token.nonce, key.not_after):
            return self._admit_spent_query(Admission(name, token.nonce, key.not_after, is_spent=True))
        if not token.is_signed(key):
            raise TokenInvalid("the issuer did not sign the upload token", field=_FIELD, remedy=_GET_REMEDY)
        return Admission(name, token.nonce, key.not_after)

    def _admit_spent_query(self, admission: Admission) -> Admission:
        """Admit a request with a spent token, which asks about its report, up to a number of requests in a minute."""
        now = self._clock.monotonic()
        if now - self._minute_start >= _MINUTE_SECONDS:
            self._minute_start, self._n_spent_queries = now, Counter()
        self._n_spent_queries[admission.nonce] += 1
        if self._n_spent_queries[admission.nonce] > _SPENT_QUERIES_MAX:
            raise admission.spent_error()
        return admission

    def _find_key(self, issuer_keys: IssuerKeys, token: Token) -> TokenKey:
        """Return the issuer's key that a token names, and refuse unknown and expired keys."""
        key = next((candidate for candidate in issuer_keys.keys if candidate.id == token.key_id), None)
        if key is None:
            raise TokenInvalid("the upload token names no key of its issuer", field=_FIELD, remedy=_GET_REMEDY)
        if not key.is_valid(self._clock.now()):
            raise TokenExpired("the key of the upload token has expired", field=_FIELD, remedy=_GET_REMEDY)
        return key

    def _refresh_keys(self) -> Mapping[str, IssuerKeys]:
        """Return the current keys by experiment; recompute the experiments by challenge if they changed."""
        keys_by_experiment = self._keys.all()
        if keys_by_experiment is not self._last_keys:
            issuers = [(name, issuer_keys.issuer) for name, issuer_keys in keys_by_experiment.items()]
            challenges = [Challenge(issuer, origin, name) for name, issuer in issuers for origin in self._origins]
            self._experiments = {challenge.digest: challenge.experiment for challenge in challenges}
            self._last_keys = keys_by_experiment
        return keys_by_experiment

    def challenge(self, experiment: str) -> str:
        """Return the ``WWW-Authenticate`` header that asks for a token of an experiment (RFC 9577, section 2.1)."""
        issuer_keys, now = self._refresh_keys().get(experiment), self._clock.now()
        valid_key = issuer_keys and next((key for key in issuer_keys.keys if key.is_valid(now)), None)
        if not issuer_keys or not valid_key:
            return SCHEME
        key, text = self._challenges.get(experiment, (None, ""))
        if key is not valid_key:
            text = Challenge(issuer_keys.issuer, self._origins[0], experiment).header(valid_key)
            self._challenges[experiment] = valid_key, text
        return text

    def find_keys(self, experiment: str) -> IssuerKeys | None:
        """Return the token keys of an experiment, if any are known."""
        return self._refresh_keys().get(experiment)

    def directory(self, experiment: str) -> Directory:
        """Return the directory of an experiment's token keys, for devices; refuse an experiment without keys."""
        issuer_keys = self.find_keys(experiment)
        if issuer_keys is None:
            raise NotFound("no token key is known for this experiment", field="name", remedy="check its spelling")
        return Directory.from_keys(issuer_keys.issuer, {experiment: list(issuer_keys.keys)})


def _elsewhere_error() -> TokenRefused:
    detail = "the upload token is for another experiment, endpoint or issuer"
    return TokenWrongAudience(detail, field=_FIELD, remedy=_GET_REMEDY)
