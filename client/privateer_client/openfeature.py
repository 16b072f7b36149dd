"""A provider for OpenFeature: a flag is an experiment, to evaluate it is to choose, and to track is to report.

It needs the extra ``privateer-client[openfeature]``.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import Any, Final, TypeVar

from privateer_client.client import Client
from privateer_client.session import Session
from privateer_client.states import Outcome
from privateer_core.errors import Deleted, InputError, NotFound, PrivateerError

try:
    from openfeature.evaluation_context import EvaluationContext
    from openfeature.exception import ErrorCode
    from openfeature.flag_evaluation import FlagResolutionDetails, FlagValueType, Reason
    from openfeature.provider import AbstractProvider, Metadata
    from openfeature.track import TrackingEventDetails
except ImportError as error:
    raise ImportError("OpenFeature is not here: install privateer-client[openfeature]") from error

_Value = TypeVar("_Value")
_EACH: Final = "each person is known by theirs"
_OTHER: Final = "another targeting key, and a Client is one person: give the provider client.person"
_MOST: Final = 1000
"""Sessions that a provider has at a time; the others are in the ledger."""
_BOOLEANS: Final = {"on": True, "off": False, "true": True, "false": False}
Reported = Callable[[str, Outcome | PrivateerError], None]
"""A function that is called with an experiment's name and what became of a report to it."""


class _Flag:
    """A person's session, whose arm stands; ``fresh``: until the person's features change."""

    def __init__(self, session: Session[Outcome], *, fresh: bool) -> None:
        self.session, self.arm, self._is_fresh = session, "", fresh
        self._seen: dict[str, Any] | None = None
        self._lock = Lock()

    def choose(self, attributes: Mapping[str, Any]) -> str:
        """Return the arm of this person."""
        # What is no feature is left out: applications share one context among all flags.
        given = {name: attributes[name] for name in self.session.features if name in attributes}
        with self._lock:
            is_other = self._is_fresh and given != self._seen
            if not self.arm or is_other:
                self.arm = str(self.session.choose(given, fresh=is_other and self._seen is not None))
                self._seen = given
            return self.arm

    def report(self, details: TrackingEventDetails | None) -> Outcome:
        """Report the value of an event, 1 without one, and the answers of yes or no among its attributes."""
        value = 1.0 if details is None or details.value is None else details.value
        given = {} if details is None else details.attributes
        answers = {name: given.get(name, False) for name in self.session.answers}
        with self._lock:
            return self.session.report({"reward": value, **answers} if answers else value)


class PrivateerProvider(AbstractProvider):
    """A provider of experiments, for ``openfeature.api.set_provider``.

    A person's arm stays the same, also after a restart (`Session.choose`), and here until the session is forgotten.
    Reports are made beside, in the order of their events;
    nobody waits for them but ``shutdown``.

    Parameters
    ----------
    client
        The client of this device's one person, which refuses a second targeting key; or, where many people are served,
        what returns the client of a person by their targeting key: `Client.person`. The key is not sent.
    outcomes
        The experiment that each event is the outcome of; by default an event of an experiment's name.
    values
        The value of each arm by experiment; by default "on" and "off", or "true" and "false", are booleans, and other
        arms are their names.
    reported
        Told what became of each report.
    fresh
        The experiments in which a person whose features change, while the provider runs, gets a fresh choice.
    within
        Seconds for an evaluation. Whoever has no arm by then gets the default, and at a later evaluation the arm.

    Examples
    --------
    >>> from openfeature import api  # doctest: +SKIP
    >>> api.set_provider(PrivateerProvider(Client("https://learn.example"), {"bought": "offers"}))  # doctest: +SKIP
    """

    def __init__(
        self,
        client: Client | Callable[[str], Client],
        outcomes: Mapping[str, str] | None = None,
        values: Mapping[str, Mapping[str, Any]] | None = None,
        reported: Reported | None = None,
        fresh: Collection[str] = (),
        within: float = 0.3,
    ) -> None:
        super().__init__()
        self._client, self._outcomes, self._values = client, outcomes or {}, values or {}
        self._reported, self._fresh, self._within = reported, fresh, within
        self._flags: dict[tuple[str, str], _Flag] = {}
        self._lock, self._person = Lock(), ""
        self._beside: ThreadPoolExecutor | None = None

    def get_metadata(self) -> Metadata:
        """Return the provider's name."""
        return Metadata("privateer")

    def shutdown(self) -> None:
        """Wait for the reports on their way."""
        with self._lock:
            beside, self._beside = self._beside, None
        if beside is not None:
            beside.shutdown()

    def forget(self, targeting_key: str) -> None:
        """Forget a person's sessions; their ledger stays."""
        with self._lock:
            self._flags = {at: flag for at, flag in self._flags.items() if at[1] != targeting_key}

    def resolve_boolean_details(
        self, flag_key: str, default_value: bool, evaluation_context: EvaluationContext | None = None
    ) -> FlagResolutionDetails[bool]:
        """Choose for a person; the arm is yes or no."""
        return self._resolved(flag_key, default_value, evaluation_context, bool)

    def resolve_string_details(
        self, flag_key: str, default_value: str, evaluation_context: EvaluationContext | None = None
    ) -> FlagResolutionDetails[str]:
        """Choose for a person; the value is the arm's name unless it has another."""
        return self._resolved(flag_key, default_value, evaluation_context, str)

    def resolve_integer_details(
        self, flag_key: str, default_value: int, evaluation_context: EvaluationContext | None = None
    ) -> FlagResolutionDetails[int]:
        """Choose for a person; the arm has a whole number."""
        return self._resolved(flag_key, default_value, evaluation_context, int)

    def resolve_float_details(
        self, flag_key: str, default_value: float, evaluation_context: EvaluationContext | None = None
    ) -> FlagResolutionDetails[float]:
        """Choose for a person; the arm has a number."""
        return self._resolved(flag_key, default_value, evaluation_context, float)

    def resolve_object_details(
        self,
        flag_key: str,
        default_value: Sequence[FlagValueType] | Mapping[str, FlagValueType],
        evaluation_context: EvaluationContext | None = None,
    ) -> FlagResolutionDetails[Sequence[FlagValueType] | Mapping[str, FlagValueType]]:
        """Choose for a person; the arm has a mapping or a list."""
        return self._resolved(flag_key, default_value, evaluation_context, dict, list, tuple)

    def track(
        self,
        tracking_event_name: str,
        evaluation_context: EvaluationContext | None = None,
        tracking_event_details: TrackingEventDetails | None = None,
    ) -> None:
        """Report what came of a choice; events that are the outcome of none are left alone."""
        name = self._outcomes.get(tracking_event_name, tracking_event_name)
        key = self._key(evaluation_context)
        with self._lock:
            flag = None if self._is_other(key) else self._flags.get((name, self._known(key)))
            if (flag is None or not flag.arm) and (isinstance(self._client, Client) or not key):
                return
            # A provider that was shut down may be set again, and gets late events.
            self._beside = self._beside or ThreadPoolExecutor(1, "privateer-reports")
            self._beside.submit(self._report, name, key, flag, tracking_event_details)

    def _report(self, name: str, key: str, flag: _Flag | None, details: TrackingEventDetails | None) -> None:
        try:
            flag = flag or self._resumed(name, key)
            if flag is None:
                return
            outcome: Outcome | PrivateerError = flag.report(details)
        except PrivateerError as error:
            outcome = error
        if self._reported is not None:
            self._reported(name, outcome)

    def _resumed(self, name: str, key: str) -> _Flag | None:
        """Return the flag of a choice that another process has made, or this one long ago; None: there is none."""
        assert not isinstance(self._client, Client), "a client's one person is never forgotten"
        try:
            return _Flag(self._client(key).resume(name), fresh=False)
        except InputError:
            return None

    def _key(self, context: EvaluationContext | None) -> str:
        """Return the targeting key; a number is the person of its text."""
        key = None if context is None else context.targeting_key
        return "" if key is None else str(key)

    def _known(self, key: str) -> str:
        """Return the person by whom flags are known: a client is one."""
        return "" if isinstance(self._client, Client) else key

    def _is_other(self, key: str) -> bool:
        """Whether a client, which is one person, is asked about another one."""
        if not isinstance(self._client, Client) or not key:
            return False
        self._person = self._person or key
        return key != self._person

    def _flag(self, name: str, key: str) -> _Flag:
        with self._lock:
            known = self._flags.pop((name, key), None)
            if known is not None:
                self._flags[name, key] = known
                return known
        # Nobody else waits while a server takes its time.
        client = self._client if isinstance(self._client, Client) else self._client(key)
        joined = _Flag(client.session_in_time(name, self._within), fresh=name in self._fresh)
        with self._lock:
            if len(self._flags) >= _MOST:
                del self._flags[next(iter(self._flags))]
            return self._flags.setdefault((name, key), joined)

    def _resolved(
        self, name: str, default: _Value, context: EvaluationContext | None, *kinds: type
    ) -> FlagResolutionDetails[_Value]:
        key = self._key(context)
        if not (isinstance(self._client, Client) or key):
            return _failed(default, ErrorCode.TARGETING_KEY_MISSING, f"give a targeting key: {_EACH}")
        with self._lock:
            is_other = self._is_other(key)
        if is_other:
            return _failed(default, ErrorCode.INVALID_CONTEXT, _OTHER)
        try:
            flag = self._flag(name, self._known(key))
            arm = flag.choose({} if context is None else context.attributes)
        except PrivateerError as error:
            return _failed(default, _code_of(error), str(error))
        value: Any = self._value(name, arm, kinds)
        value = float(value) if kinds == (float,) and type(value) is int else value
        if type(value) not in kinds:
            detail = f"{name}: the arm has no value of this type: give one in `values`"
            return _failed(default, ErrorCode.TYPE_MISMATCH, detail)
        facts = {"asked": flag.session.asked, "offline": flag.session.offline}
        return FlagResolutionDetails(value, reason=Reason.SPLIT, variant=arm, flag_metadata=facts)

    def _value(self, name: str, arm: str, kinds: tuple[type, ...]) -> Any:
        if name in self._values:
            return self._values[name].get(arm)
        return _BOOLEANS.get(arm) if bool in kinds else arm


def _failed(default: _Value, code: ErrorCode, message: str) -> FlagResolutionDetails[_Value]:
    return FlagResolutionDetails(default, code, message, Reason.ERROR)


def _code_of(error: PrivateerError) -> ErrorCode:
    if isinstance(error, NotFound | Deleted):
        return ErrorCode.FLAG_NOT_FOUND
    return ErrorCode.INVALID_CONTEXT if isinstance(error, InputError) else ErrorCode.GENERAL
