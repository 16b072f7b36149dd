"""Fetching of upload tokens: in advance, apart from reports, with keys that all devices share. It does no I/O."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple
from urllib.parse import quote

from privateer_client.delivery import DeliveryRequest, EndpointAnswer, Steps
from privateer_client.ledger.account_protocol import Account
from privateer_client.ledger.token_store import TokenStore, token_mark
from privateer_client.participation import SealedReport
from privateer_client.publications import Address
from privateer_core.clock import Clock
from privateer_core.errors import (
    AttestationRefused,
    InputError,
    Malformed,
    PrivateerError,
    TermsRefused,
    TokensExhausted,
    Unavailable,
)
from privateer_core.wire.attestation import HEADER
from privateer_core.wire.problem import read_slug
from privateer_core.wire.token import REQUEST_TYPE, RESPONSE_TYPE, SIGNATURE_SIZE, Challenge, PendingToken, origin_name
from privateer_core.wire.token_keys import MEDIA_TYPE, VALID_KEYS_MAX, Directory, TokenKey

Attest = Callable[[str], str]
"""Returns the attestation that the application's backend signed for this device and an experiment."""
_OK, _NOT_FOUND = 200, 404
_REFUSALS: Final = {error.slug: error for error in (AttestationRefused, TokensExhausted)}


@dataclass(frozen=True)
class Issuer:
    """The service that signs upload tokens."""

    url: str  # the address
    attest: Attest | None = None  # returns the device's attestation; None: the issuer needs none


class _Keys(NamedTuple):
    """The keys of an endpoint: the usable keys, the newest first, and all published keys."""

    usable: list[TokenKey]
    published: list[TokenKey]


class Tokens:
    """The upload tokens of an experiment.

    address, issuer: the experiment, and the issuer of its tokens.
    account: stores the tokens.
    """

    def __init__(self, address: Address, issuer: Issuer, account: Account, clock: Clock) -> None:
        store = account.tokens
        if store is None:
            raise InputError("keeps no upload tokens", field="ledger", remedy="use a Ledger, or name no issuer")
        self._address, self._issuer, self._clock = address, issuer, clock
        self._token_store: TokenStore = store

    def fill(self, endpoint: str, target: int, timeout: float) -> Steps[None]:
        """Fetch tokens until ``target`` tokens are available for an endpoint; send nothing if they are."""
        n_missing = target - self._token_store.count_available(self._address.identity, endpoint)
        if n_missing > 0:
            keys = yield from self._fetch_agreed_keys(self._address.service_url(endpoint), timeout)
            yield from self._get_tokens(endpoint, n_missing, keys.usable, timeout)

    def replace_refused_token(self, report: SealedReport, timeout: float) -> Steps[None]:
        """Fetch another token for a report with a refused token, if the endpoint does not publish the token's key.

        The report keeps its token until another token is there, since an issuer may restore its keys. Its bytes stay
        the same, with the report id, so that it is counted once with any token.
        """
        location, token = (report.experiment, report.endpoint), self._token_store.find_tied(report)
        if not token:
            return
        keys = yield from self._fetch_agreed_keys(self._address.service_url(report.endpoint), timeout)
        marks = {self._challenge(report.endpoint).digest + key.id for key in keys.published}
        if token_mark(token) in marks:
            return
        strays = self._token_store.list_strays(*location, marks)
        n_missing = (
            1
            + self._token_store.count_tokenless(*location)
            + len(strays)
            - self._token_store.count_available(*location)
        )
        if n_missing > 0:
            yield from self._get_tokens(report.endpoint, n_missing, keys.usable, timeout)
        self._token_store.discard_token(report, token, strays)

    def _challenge(self, endpoint: str) -> Challenge:
        names = origin_name(self._issuer.url), origin_name(self._address.service_url(endpoint))
        return Challenge(*names, self._address.name)

    def _get_tokens(self, endpoint: str, n_missing: int, keys: list[TokenKey], timeout: float) -> Steps[None]:
        """Fetch ``n_missing`` tokens, first those of earlier requests without an answer."""
        location, challenge = (self._address.identity, endpoint), self._challenge(endpoint)
        self._token_store.delete_obsolete(*location, challenge.digest)
        pending = self._drop_unsignable(self._token_store.list_pending(*location), keys)
        new_tokens = [PendingToken.draw(challenge, keys[0]) for _ in range(n_missing - len(pending))]
        self._token_store.store_pending(*location, new_tokens, keys[0].not_after)
        for token in [*pending, *new_tokens][:n_missing]:
            yield from self._request_signature(token, keys, timeout)

    def _drop_unsignable(self, pending: list[PendingToken], keys: list[TokenKey]) -> list[PendingToken]:
        """Return the pending tokens that can still be signed, and delete the others."""
        valid_ids = {key.id for key in keys}
        for token in pending:
            if token.key_id not in valid_ids:
                self._token_store.delete(token)
        return [token for token in pending if token.key_id in valid_ids]

    def _fetch_agreed_keys(self, base: str, timeout: float) -> Steps["_Keys"]:
        """Fetch the keys for tokens: the newest key of the server's list, which the endpoint must publish, too.

        Neither request identifies the device. If the endpoint, or the issuer behind it, could choose keys for devices,
        the keys would distinguish devices when they spend their tokens.
        """
        shown_keys = yield from self._fetch_keys(base, timeout)
        if shown_keys is None:
            raise Unavailable("the endpoint shows no token keys", field="issuer", remedy="try again later")
        server = self._address.server
        listed_keys = shown_keys if base == server else (yield from self._fetch_keys(server, timeout))
        if listed_keys is None:
            detail = "the server lists no token keys, so the endpoint could choose one for each device"
            remedy = "have the server's operator set PRIVATEER_TOKEN_KEYS there, too"
            raise TermsRefused(detail, field="issuer", remedy=remedy)
        shown_ids = {key.id for key in shown_keys}
        if listed_keys[0].id not in shown_ids:
            raise TermsRefused(
                "the endpoint does not show the newest token key that the server lists",
                field="issuer",
                remedy="try again in a few minutes, since a new key takes one to come to both; if it lasts, do not "
                "report there: such keys would tell devices apart",
            )
        return _Keys([key for key in listed_keys if key.id in shown_ids], shown_keys)

    def _fetch_keys(self, base: str, timeout: float) -> Steps[list[TokenKey] | None]:
        """Fetch the issuer's valid keys of the experiment; None without any; `TermsRefused` for an unsafe answer."""
        url = f"{base}/experiments/{quote(self._address.name, safe='')}/token-keys"
        answer = yield DeliveryRequest("GET", url, {"Accept": MEDIA_TYPE}, timeout)
        if answer is not None and answer.status == _NOT_FOUND:
            return None
        if answer is None or answer.status != _OK:
            raise Unavailable("no answer about token keys", field="issuer", remedy="try again later")
        try:
            directory = Directory.decode(answer.body)
            keys = [key for key in directory.keys(self._address.name) if key.is_valid(self._clock.now())]
        except Malformed as error:
            raise _untrusted_keys_error("no token keys of type 2") from error
        if directory.issuer != origin_name(self._issuer.url):
            raise _untrusted_keys_error("the token keys are another issuer's than the application names")
        if len(keys) > VALID_KEYS_MAX:
            raise _untrusted_keys_error(f"more than {VALID_KEYS_MAX} token keys are valid at a time")
        return keys or None

    def _request_signature(self, pending: PendingToken, keys: list[TokenKey], timeout: float) -> Steps[None]:
        """Request the signature of a token, and store the token."""
        key = next(key for key in keys if key.id == pending.key_id)
        url = f"{self._issuer.url}/experiments/{quote(self._address.name, safe='')}/tokens"
        headers = {"Content-Type": REQUEST_TYPE, "Accept": RESPONSE_TYPE}
        if self._issuer.attest is not None:
            headers[HEADER] = self._issuer.attest(self._address.name)
        answer = yield DeliveryRequest("POST", url, headers, timeout, pending.request, max_bytes=SIGNATURE_SIZE)
        blind_signature = self._read_signature(answer, pending)
        try:
            token = pending.finish(key, blind_signature)
        except Malformed as error:
            raise _untrusted_keys_error("the issuer signs with another key than everybody's") from error
        self._token_store.store_signed(pending, token)

    def _read_signature(self, answer: EndpointAnswer | None, pending: PendingToken) -> bytes:
        """Return the signature in an answer; raise the reason if it is missing, and drop a token that was refused."""
        if answer is not None and answer.status == _OK:
            return answer.body
        slug = "" if answer is None else read_slug(answer.body)
        if slug == "token-request-refused":
            self._token_store.delete(pending)
        if slug in _REFUSALS:
            raise _REFUSALS[slug]("the issuer gives this device no token", field="issuer", remedy=_REMEDIES[slug])
        raise Unavailable("the issuer has signed no token", field="issuer", remedy="try again later")


_REMEDIES: Final = {
    AttestationRefused.slug: "have the application's backend sign anew",
    TokensExhausted.slug: "nothing to do: it has had its share",
}


def _untrusted_keys_error(detail: str) -> PrivateerError:
    return TermsRefused(detail, field="issuer", remedy="do not report there: such keys would tell devices apart")
