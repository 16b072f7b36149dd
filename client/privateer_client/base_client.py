"""Everything that sync and async clients share: what to do, in steps that others carry out."""

import math
import posixpath
import re
import secrets
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import Enum
from functools import partial
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, Generic, Self, TypeVar
from urllib.parse import urlsplit

from privateer_client.delivery import DOUBTED, Pace, Steps, deliver, deliver_once
from privateer_client.ledger.account_protocol import Account
from privateer_client.ledger.ledger import Ledger
from privateer_client.own_session import GivenContexts, OwnSession
from privateer_client.participation import SealedReport
from privateer_client.person_choice import PersonChoice
from privateer_client.publications import Address, Publications, Published
from privateer_client.session import Reported, Session
from privateer_client.shared_publications import SharedPublications, Shelf
from privateer_client.states import Outcome
from privateer_core.clock import Clock, SystemClock
from privateer_core.errors import AlreadyReported, Deleted, InputError, PrivateerError, TokenWarning, Unavailable
from privateer_core.privacy.terms_verification import Limits
from privateer_core.wire.identity import read_keys

if TYPE_CHECKING:
    import httpx

    from privateer_client.tokens import Attest, Issuer, Tokens

_USUAL: Final = re.compile(r"https?://[a-z0-9.-]*[a-z0-9](?::(?!80$|443$)(?:[1-9][0-9]{1,3}|[1-5][0-9]{4}))?")
"""An address that is spelled in the one way already, as most are."""
_Item = TypeVar("_Item")
_Transport = TypeVar("_Transport", "httpx.BaseTransport", "httpx.AsyncBaseTransport")


class _Serves(Enum):
    """Whom a client is, from its first use on."""

    NOBODY = "nobody yet"
    ONE = "one person"
    MANY = "many people"


class BaseClient(Generic[_Transport]):
    """A client without a transport; does no I/O but the ledger's, and none before the ledger is needed."""

    def __init__(
        self,
        url: str,
        *,
        shuffler: str | None = None,
        issuer: str | None = None,
        attest: "Attest | None" = None,
        limits: Limits | None = None,
        ledger: Account | str | Path | None = None,
        timeout: float = 10.0,
        patience: float = 10.0,
        transport: _Transport | None = None,
        clock: Clock | None = None,
        server_key: str = "",
    ) -> None:
        self._pinned = read_keys(server_key, "server_key")
        self._url = _normal(url, "url")
        self._shuffler = _normal(shuffler, "shuffler") if shuffler else None
        self._issuer = _issuer(issuer, attest) if issuer else None
        self._pace = Pace(timeout, patience, clock or SystemClock())
        self._limits = limits or Limits()
        self._ledger: Account | Callable[[], Account] | str | Path | None = ledger
        self._lock, self._serves = Lock(), _Serves.NOBODY
        self._contexts, self._shelf = GivenContexts(), Shelf()
        self._root: BaseClient[_Transport] = self
        self._open(transport)

    def _open(self, transport: _Transport | None) -> None:
        """Prepare what all people of the process share."""
        raise NotImplementedError

    def _share(self) -> None:
        """Keep connections open, since all people of the process share them."""
        raise NotImplementedError

    def _person(self, key: str | int, attest: "Attest | None") -> Self:
        """Return the client of one person of many: what is no person's is shared."""
        self._serve(_Serves.MANY)
        if isinstance(key, bool) or not isinstance(key, str | int) or key == "":
            remedy = "give what the application calls the person, not None for all who are not signed in"
            raise InputError("must be a text or a whole number", field="key", remedy=remedy)
        one = self._of(lambda: self._people.person(str(key)))
        if self._issuer and attest:
            one._issuer = replace(self._issuer, attest=attest)
        return one

    def _of(self, ledger: Callable[[], Account]) -> Self:
        """Return the client of a person, with a ledger that is opened when it is first needed."""
        one = object.__new__(type(self))
        vars(one).update(vars(self))
        one._ledger, one._lock, one._serves = ledger, Lock(), _Serves.ONE
        vars(one).pop("_in_time", None)
        return one

    def _serve(self, whom: _Serves) -> None:
        """Refuse to be one person for one call and many for another: the second would get what is the first's."""
        with self._lock:
            before, self._serves = self._serves, whom if self._serves is _Serves.NOBODY else self._serves
            if whom is _Serves.MANY and before is _Serves.NOBODY:
                self._share()
        if self._serves is not whom:
            raise InputError(f"this client is {self._serves.value}", field="person", remedy=_REMEDIES[whom])

    @property
    def _is_shared(self) -> bool:
        """Whether it is a person's of many."""
        return self._root is not self

    @property
    def _account(self) -> Account:
        """The ledger of this client's person."""
        self._serve(_Serves.ONE)
        return self._opened

    @property
    def _opened(self) -> Account:
        """The ledger, which is opened when it is first needed."""
        with self._lock:
            if self._ledger is None or isinstance(self._ledger, str | Path):
                self._ledger = Ledger(self._ledger, clock=self._pace.clock)
            elif callable(self._ledger):
                self._ledger = self._ledger()
            return self._ledger

    @property
    def _people(self) -> Ledger:
        """The ledger of many people."""
        return _as_ledger(self._opened)

    def _forgetting(self) -> Steps[None]:
        """Erase what the ledger keeps of this client's person; asks nobody."""
        _as_ledger(self._account).forget_person()
        yield from ()

    @property
    def head(self) -> str | None:
        """The last signed head of the server's log, for comparing with other devices; None before the first answer."""
        known = self._opened.servers.get(self._url)
        return None if known is None else known.head

    @property
    def evidence(self) -> str | None:
        """What shows that the server contradicted itself, as JSON; None if it never did."""
        return self._opened.servers.evidence(self._url)

    def _joining(self, run: Callable[[Steps[Outcome]], Reported], name: str, cohort: str) -> Steps[Session[Reported]]:
        """Fetch and check the publication of an experiment; before, send once what is due or waits."""
        end = self._pace.clock.monotonic() + self._pace.timeout
        publications = self._publications(name, cohort)
        yield from publications.reconciled()
        yield from self._settling(end)
        yield from deliver_once(self._waiting(), self._account, self._pace, end)
        try:
            published = yield from publications.joined()
        except Deleted:
            self._account.forget(publications.address.identity)
            raise
        session = self._session(run, publications, published)
        if self._issuer:
            yield from self._with_warning(self._fetching(publications.address, published, end))
        return session

    def _fetching(self, address: Address, published: Published, end: float) -> Steps[None]:
        """Get a token for each report that this device may still make to an experiment, before ``end``."""
        followed, paid = published.participation, self._account.payment(address.identity)
        left = followed.spec.reports - (0 if paid is None else paid.made)
        endpoint, seconds = address.endpoint(followed.terms.trust), end - self._pace.clock.monotonic()
        if followed.round.batch and left > 0 and seconds > 0:
            yield from self._tokens(address).fill(endpoint, left, min(self._pace.timeout, seconds))

    def _tokens(self, address: Address) -> "Tokens":
        from privateer_client.tokens import Tokens

        if self._issuer is None:
            raise InputError("none is named", field="issuer", remedy="Client(url, issuer='https://...')")
        return Tokens(address, self._issuer, self._account, self._pace.clock)

    def _with_warning(self, steps: Steps[None]) -> Steps[None]:
        """Warn of what keeps tokens away: the person still gets an arm."""
        try:
            yield from steps
        except PrivateerError as error:
            warnings.warn(f"no upload token: {error}", TokenWarning, stacklevel=2)

    def _ahead(self, name: str) -> Steps[int]:
        publications = self._publications(name)
        publications.check_server()
        published = yield from publications.joined()
        address, endpoint = publications.address, publications.address.endpoint(published.participation.terms.trust)
        yield from self._fetching(address, published, math.inf)
        return self._account.tokens.count(address.identity, endpoint) if self._account.tokens else 0

    def _resumed(self, run: Callable[[Steps[Outcome]], Reported], name: str) -> Session[Reported]:
        """Return the session of a choice that is kept; asks nobody."""
        publications = self._publications(name)
        publications.check_server()
        identity = publications.address.identity
        if self._account.choice(identity) is None:
            paid = self._account.payment(identity)
            if paid is not None and paid.made >= paid.reports:
                raise AlreadyReported("this device has reported to the experiment", remedy="nothing to do")
            raise InputError("no choice is kept", field="name", remedy="join the experiment, and choose")
        published = publications.kept()
        if published is None:
            raise Unavailable("the policy is not kept", remedy="join the experiment: the choice stands")
        return self._session(run, publications, published)

    def _reporting(self, run: Callable[[Steps[Outcome]], Reported], name: str, reward: Any) -> Steps[Outcome]:
        """Report on the choice that is kept, whichever process made it."""
        if self._account.choice(self._address(name).identity) is None:
            paid = self._account.payment(self._address(name).identity)
            return Outcome.NOT_ASKED if paid is None else Outcome.ALREADY_REPORTED
        try:
            session, publications = self._resumed(run, name), self._publications(name)
            steps = session.reporting(reward)
            return (yield from publications.noticed(steps) if isinstance(publications, SharedPublications) else steps)
        except AlreadyReported:
            return Outcome.ALREADY_REPORTED

    def _offline(self, run: Callable[[Steps[Outcome]], Reported], name: str) -> Session[Reported] | None:
        """Return a session by the publication that is kept; None without one."""
        publications = self._publications(name)
        publications.check_server()
        published = publications.kept()
        return None if published is None else self._session(run, publications, published)

    def _session(
        self, run: Callable[[Steps[Outcome]], Reported], publications: Publications, published: Published
    ) -> Session[Reported]:
        publications.address.endpoint(published.participation.terms.trust)  # refuses where there is none
        parts = run, published, publications, self._account, self._pace
        return Session(*parts) if self._is_shared else OwnSession(self._contexts, *parts)

    def _resending(self) -> Steps[dict[str, Outcome]]:
        self._publications("").check_server()
        left = yield from self._settling(math.inf)
        known = yield from deliver(self._waiting(), self._account, self._pace)
        sent = {report.experiment: verdict.outcome for report, verdict in known.items()}
        if self._issuer:
            doubted = [report for report, verdict in known.items() if verdict.reason in DOUBTED]
            yield from self._with_warning(self._for_the_next_time(doubted))
        return {experiment.rpartition("/")[2]: outcome for experiment, outcome in (left | sent).items()}

    def _resending_people(self) -> Steps[dict[str, Counter[Outcome]]]:
        """Do for everybody what `_resending` does, until nobody has answered for as long as ``patience``."""
        self._serve(_Serves.MANY)
        counts = dict[str, Counter[Outcome]]()
        clock, once = self._pace.clock, replace(self._pace, patience=0.0)
        end = clock.monotonic() + self._pace.patience
        for ledger in self._people.people_due():
            one = self._of(partial(_same, ledger))
            one._pace = once
            outcomes = yield from one._resending()
            for name, outcome in outcomes.items():
                counts.setdefault(name, Counter())[outcome] += 1
            if set(outcomes.values()) - {Outcome.PENDING}:
                end = clock.monotonic() + self._pace.patience
            elif clock.monotonic() > end:
                break
        return counts

    def _for_the_next_time(self, doubted: Sequence[SealedReport]) -> Steps[None]:
        """Get tokens for the reports that wait without: the next `resend` sends them, apart from this request.

        Those whose tokens the endpoint does not know get others if it never will.
        """
        for experiment, endpoint in {(report.experiment, report.endpoint) for report in self._waiting()}:
            tokens = self._tokens(self._address(_parts(experiment)[2]))
            wanted = self._account.tokens.bare(experiment, endpoint) if self._account.tokens else 0
            yield from tokens.fill(endpoint, wanted, self._pace.timeout)
        for report in doubted:
            yield from self._tokens(self._address(_parts(report.experiment)[2])).replace(report, self._pace.timeout)

    def _settling(self, end: float) -> Steps[dict[str, Outcome]]:
        """Make the reports that are due, before ``end``; return the outcomes of those that are not made."""
        outcomes = dict[str, Outcome]()
        names = [name for server, _, name in map(_parts, self._account.choices()) if server == self._url]
        for name in _shuffled(names):
            left = min(self._pace.timeout, end - self._pace.clock.monotonic())
            if left <= 0:
                break
            choice = PersonChoice(self._publications(name), self._account, self._pace.clock)
            outcome = yield from choice.settle(left)
            if outcome is not None:
                outcomes[f"{self._url}/{name}"] = outcome
        return outcomes

    def _waiting(self) -> list[SealedReport]:
        """Return the reports for this client's endpoints, in random order: one that hangs must not starve the rest."""
        return _shuffled([report for report in self._account.waiting() if self._is_own(report)])

    def _is_own(self, report: SealedReport) -> bool:
        server, _, name = _parts(report.experiment)
        return server == self._url and report.endpoint in self._address(name).endpoints

    def _publications(self, name: str, cohort: str = "") -> Publications:
        address = self._address(name)
        if not self._is_shared:
            return Publications(address, self._limits, self._account, self._pace, cohort, self._pinned)
        root = self._root
        account, pace = root._opened, root._pace
        made = partial(SharedPublications, address, self._limits, account, pace, cohort, self._pinned)
        return root._shelf.get(name, cohort, made)

    def _has_fresh(self, name: str) -> bool:
        """Whether to join asks nobody, since another person of the process has just joined."""
        publications = self._publications(name)
        return isinstance(publications, SharedPublications) and publications.are_fresh

    def _address(self, name: str) -> Address:
        return Address(self._url, name, self._shuffler)


_REMEDIES: Final = {
    _Serves.ONE: "call client.person(key), with what the application calls the person, and use what it returns",
    _Serves.MANY: "make a client for many people, and let none of them use it but by client.person(key)",
}


def _same(account: Account) -> Account:
    return account


def _as_ledger(account: Account) -> Ledger:
    if not isinstance(account, Ledger):
        raise InputError("is of a kind of its own, for one person", field="ledger", remedy="give a Ledger, or a path")
    return account


def _issuer(url: str, attest: "Attest | None") -> "Issuer":
    from privateer_client.tokens import Issuer  # few experiments need tokens

    return Issuer(_normal(url, "issuer"), attest)


def _normal(url: str, field: str) -> str:
    """Spell a service's address in one way, since the ledger knows an experiment by its server's address."""
    if _USUAL.fullmatch(url):
        return url
    import httpx

    try:
        parsed = httpx.URL(urlsplit(url).geturl())
    except (httpx.InvalidURL, ValueError):
        parsed = httpx.URL()
    if parsed.scheme not in ("http", "https") or not parsed.host or parsed.query or parsed.userinfo:
        raise InputError("not the address of a service", field=field, remedy="write https://host or https://host:port")
    path = posixpath.normpath(parsed.path).strip("/.")
    port = f":{parsed.port}" if parsed.port else ""
    host = f"[{parsed.host}]" if ":" in parsed.host else parsed.host
    return f"{parsed.scheme}://{host}{port}" + (f"/{path}" if path else "")


def _parts(identity: str) -> tuple[str, str, str]:
    """Return the server of an experiment and, last, its name."""
    return identity.rpartition("/")


def _shuffled(some: list[_Item]) -> list[_Item]:
    return secrets.SystemRandom().sample(some, len(some))
