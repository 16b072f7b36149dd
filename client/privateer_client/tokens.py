"""How a device gets upload tokens: ahead, apart from reports, with keys that are everybody's. Nothing here does I/O."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple
from urllib.parse import quote

from privateer_client.delivery import Ask, EndpointAnswer, Steps
from privateer_client.ledger.account_protocol import Account
from privateer_client.ledger.token_store import TokenStore, mark_of
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
from privateer_core.wire.problem import slug_of
from privateer_core.wire.token import (
    REQUEST_TYPE,
    RESPONSE_TYPE,
    SIGNATURE_SIZE,
    Challenge,
    PendingToken,
    server_name,
)
from privateer_core.wire.token_keys import MEDIA_TYPE, VALID_MAX, Directory, TokenKey

Attest = Callable[[str], str]
"""Returns what the application's backend signed for this device and an experiment."""
_OK, _NOT_FOUND = 200, 404
_REFUSALS: Final = {error.slug: error for error in (AttestationRefused, TokensExhausted)}


@dataclass(frozen=True)
class Issuer:
    """The service that signs a device's tokens."""

    url: str  # the address
    attest: Attest | None = None  # what to tell the issuer of this device; None: nothing


class _Keys(NamedTuple):
    """The keys of an endpoint: those that are good for tokens, the newest first, and all that it shows."""

    good: list[TokenKey]
    shown: list[TokenKey]


class Tokens:
    """Gets tokens for one experiment.

    address, issuer: the experiment, and who signs its tokens.
    account: where tokens are kept.
    """

    def __init__(self, address: Address, issuer: Issuer, account: Account, clock: Clock) -> None:
        store = account.tokens
        if store is None:
            raise InputError("keeps no upload tokens", field="ledger", remedy="use a Ledger, or name no issuer")
        self._address, self._issuer, self._clock = address, issuer, clock
        self._token_store: TokenStore = store

    def fill(self, endpoint: str, wanted: int, timeout: float) -> Steps[None]:
        """Get tokens until so many are left for an endpoint; ask nobody if they are there already."""
        missing = wanted - self._token_store.count(self._address.identity, endpoint)
        if missing > 0:
            keys = yield from self._keys(self._address.base_of(endpoint), timeout)
            yield from self._get(endpoint, missing, keys.good, timeout)

    def replace(self, report: SealedReport, timeout: float) -> Steps[None]:
        """Get another token for a report whose token is refused, if it names none of the keys that the endpoint shows.

        The report keeps its token until another one is there, since an issuer may find its keys again. Its bytes stay
        as they are, and hold its id, so that it counts once whichever token they come with.
        """
        where, token = (report.experiment, report.endpoint), self._token_store.tied(report)
        if not token:
            return
        keys = yield from self._keys(self._address.base_of(report.endpoint), timeout)
        marks = {self._challenge(report.endpoint).digest + key.id for key in keys.shown}
        if mark_of(token) in marks:
            return
        strays = self._token_store.strays(*where, marks)
        missing = 1 + self._token_store.bare(*where) + len(strays) - self._token_store.count(*where)
        if missing > 0:
            yield from self._get(report.endpoint, missing, keys.good, timeout)
        self._token_store.part(report, token, strays)

    def _challenge(self, endpoint: str) -> Challenge:
        names = server_name(self._issuer.url), server_name(self._address.base_of(endpoint))
        return Challenge(*names, self._address.name)

    def _get(self, endpoint: str, missing: int, keys: list[TokenKey], timeout: float) -> Steps[None]:
        """Get so many tokens; first those that were asked for before."""
        where, challenge = (self._address.identity, endpoint), self._challenge(endpoint)
        self._token_store.keep_only(*where, challenge.digest)
        pending = self._still_valid(self._token_store.pending(*where), keys)
        drawn = [PendingToken.draw(challenge, keys[0]) for _ in range(missing - len(pending))]
        self._token_store.begin(*where, drawn, keys[0].not_after)
        for one in [*pending, *drawn][:missing]:
            yield from self._sign(one, keys, timeout)

    def _still_valid(self, pending: list[PendingToken], keys: list[TokenKey]) -> list[PendingToken]:
        """Return the tokens that were asked for before and may still be signed; forget the others."""
        known = {key.id for key in keys}
        for one in pending:
            if one.key_id not in known:
                self._token_store.drop(one)
        return [one for one in pending if one.key_id in known]

    def _keys(self, base: str, timeout: float) -> Steps["_Keys"]:
        """Return the keys for tokens: the newest that the server lists, which the endpoint must show, too.

        Neither request says who asks. If the endpoint, or the issuer behind it, could choose among keys, the choice
        would tell devices from each other when they spend their tokens.
        """
        shown = yield from self._shown(base, timeout)
        if shown is None:
            raise Unavailable("the endpoint shows no token keys", field="issuer", remedy="try again later")
        server = self._address.server
        listed = shown if base == server else (yield from self._shown(server, timeout))
        if listed is None:
            raise TermsRefused(
                "the server lists no token keys, so the endpoint could choose one for each device",
                field="issuer",
                remedy="have the server's operator set PRIVATEER_TOKEN_KEYS there, too",
            )
        there = {key.id for key in shown}
        if listed[0].id not in there:
            raise TermsRefused(
                "the endpoint does not show the newest token key that the server lists",
                field="issuer",
                remedy="try again in a few minutes, since a new key takes one to come to both; if it lasts, do not "
                "report there: such keys would tell devices apart",
            )
        return _Keys([key for key in listed if key.id in there], shown)

    def _shown(self, base: str, timeout: float) -> Steps[list[TokenKey] | None]:
        url = f"{base}/experiments/{quote(self._address.name, safe='')}/token-keys"
        answer = yield Ask("GET", url, {"Accept": MEDIA_TYPE}, timeout)
        if answer is not None and answer.status == _NOT_FOUND:
            return None
        if answer is None or answer.status != _OK:
            raise Unavailable("no answer about token keys", field="issuer", remedy="try again later")
        try:
            directory = Directory.decode(answer.body)
            keys = [key for key in directory.keys(self._address.name) if key.is_valid(self._clock.now())]
        except Malformed as error:
            raise _strange("no token keys of type 2") from error
        if directory.issuer != server_name(self._issuer.url):
            raise _strange("the token keys are another issuer's than the application names")
        if len(keys) > VALID_MAX:
            raise _strange(f"more than {VALID_MAX} token keys are valid at a time")
        return keys or None

    def _sign(self, pending: PendingToken, keys: list[TokenKey], timeout: float) -> Steps[None]:
        """Have a token signed, and keep it."""
        key = next(key for key in keys if key.id == pending.key_id)
        url = f"{self._issuer.url}/experiments/{quote(self._address.name, safe='')}/tokens"
        headers = {"Content-Type": REQUEST_TYPE, "Accept": RESPONSE_TYPE}
        if self._issuer.attest is not None:
            headers[HEADER] = self._issuer.attest(self._address.name)
        answer = yield Ask("POST", url, headers, timeout, pending.request, most=SIGNATURE_SIZE)
        signed = self._answered(answer, pending)
        try:
            token = pending.finish(key, signed)
        except Malformed as error:
            raise _strange("the issuer signs with another key than everybody's") from error
        self._token_store.finish(pending, token)

    def _answered(self, answer: EndpointAnswer | None, pending: PendingToken) -> bytes:
        if answer is not None and answer.status == _OK:
            return answer.body
        slug = "" if answer is None else slug_of(answer.body)
        if slug == "token-request-refused":
            self._token_store.drop(pending)
        if slug in _REFUSALS:
            raise _REFUSALS[slug]("the issuer gives this device no token", field="issuer", remedy=_REMEDIES[slug])
        raise Unavailable("the issuer has signed no token", field="issuer", remedy="try again later")


_REMEDIES: Final = {
    AttestationRefused.slug: "have the application's backend sign anew",
    TokensExhausted.slug: "nothing to do: it has had its share",
}


def _strange(detail: str) -> PrivateerError:
    return TermsRefused(detail, field="issuer", remedy="do not report there: such keys would tell devices apart")
