"""A provider for OpenFeature: a flag is an experiment, its evaluation is a choice, and tracking is a report.

It needs the extra ``privateer-client[openfeature]``.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from time import monotonic
from typing import Any, Final, TypeVar

from privateer_client.client import Client
from privateer_client.in_time import BackgroundTask
from privateer_client.session import Session
from privateer_client.states import ReportStatus
from privateer_core.errors import Deleted, InputError, NotFound, PrivateerError, Unavailable

try:
    from openfeature.evaluation_context import EvaluationContext
    from openfeature.exception import ErrorCode
    from openfeature.flag_evaluation import FlagResolutionDetails, FlagValueType, Reason
    from openfeature.provider import AbstractProvider, Metadata
    from openfeature.track import TrackingEventDetails
except ImportError as error:
    raise ImportError("OpenFeature is not here: install privateer-client[openfeature]") from error

_Value = TypeVar("_Value")
_KEY_MESSAGE: Final = "each person is known by theirs"
_OTHER_KEY_MESSAGE: Final = "another targeting key, and a Client is one person: give the provider client.person"
_SESSIONS_MAX: Final = 1000
"""Maximum number of sessions of a provider; the choices of further sessions are in the ledger."""
_BOOLEANS: Final = {"on": True, "off": False, "true": True, "false": False}
ReportCallback = Callable[[str, ReportStatus | PrivateerError], None]
"""A function that is called with an experiment's name and what became of a report to it."""


class _Flag:
    """A participant's session with a constant arm; with ``fresh`` the arm changes with the participant's features."""

    def __init__(self, session: Session[ReportStatus], *, fresh: bool) -> None:
        self.session, self.arm, self._is_fresh = session, "", fresh
        self._last_features: dict[str, Any] | None = None
        self._lock = Lock()

    @property
    def is_constant(self) -> bool:
        """Whether further evaluations return the arm, whatever the features."""
        return bool(self.arm) and not self._is_fresh

    def choose(self, attributes: Mapping[str, Any], is_awaited: Callable[[], bool]) -> str:
        """Return the arm of this participant."""
        # Other attributes than features are ignored, since applications share a context among all flags.
        features = {name: attributes[name] for name in self.session.features if name in attributes}
        with self._lock:
            is_other = self._is_fresh and features != self._last_features
            if not self.arm or is_other:
                is_fresh = is_other and self._last_features is not None
                self.arm = str(self.session.choose_in_time(is_awaited, features, fresh=is_fresh))
                self._last_features = features
            return self.arm

    def report(self, details: TrackingEventDetails | None) -> ReportStatus:
        """Report the value of an event, by default 1, and the yes-or-no answers among its attributes."""
        value = 1.0 if details is None or details.value is None else details.value
        attributes = {} if details is None else details.attributes
        answers = {name: attributes.get(name, False) for name in self.session.answers}
        with self._lock:
            return self.session.report({"reward": value, **answers} if answers else value)


class PrivateerProvider(AbstractProvider):
    """A provider of experiments, for ``openfeature.api.set_provider``.

    A participant's arm stays the same, also after a restart (`Session.choose`), and here until the session is
    forgotten. Reports are made in a background thread, in the order of their events; only ``shutdown`` waits for them.

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
        Is called with the status of each report.
    fresh
        The experiments in which a person whose features change, while the provider runs, gets a fresh choice.
    within
        Seconds for an evaluation. Without an arm by then it returns the default, and a later evaluation the arm.

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
        reported: ReportCallback | None = None,
        fresh: Collection[str] = (),
        within: float = 0.3,
    ) -> None:
        super().__init__()
        self._client, self._outcomes, self._values = client, outcomes or {}, values or {}
        self._reported, self._fresh, self._within = reported, fresh, within
        self._flags: dict[tuple[str, str], _Flag] = {}
        self._lock, self._person = Lock(), ""
        self._executor: ThreadPoolExecutor | None = None

    def get_metadata(self) -> Metadata:
        """Return the provider's name."""
        return Metadata("privateer")

    def shutdown(self) -> None:
        """Wait for the pending reports."""
        with self._lock:
            executor, self._executor = self._executor, None
        if executor is not None:
            executor.shutdown()

    def forget(self, targeting_key: str) -> None:
        """Forget a participant's sessions; their ledger stays."""
        with self._lock:
            self._flags = {key: flag for key, flag in self._flags.items() if key[1] != targeting_key}

    def resolve_boolean_details(
        self, flag_key: str, default_value: bool, evaluation_context: EvaluationContext | None = None
    ) -> FlagResolutionDetails[bool]:
        """Choose for a participant; the arm's value is a boolean."""
        return self._resolve(flag_key, default_value, evaluation_context, bool)

    def resolve_string_details(
        self, flag_key: str, default_value: str, evaluation_context: EvaluationContext | None = None
    ) -> FlagResolutionDetails[str]:
        """Choose for a participant; the value is the arm's name unless it has another value."""
        return self._resolve(flag_key, default_value, evaluation_context, str)

    def resolve_integer_details(
        self, flag_key: str, default_value: int, evaluation_context: EvaluationContext | None = None
    ) -> FlagResolutionDetails[int]:
        """Choose for a participant; the arm's value is a whole number."""
        return self._resolve(flag_key, default_value, evaluation_context, int)

    def resolve_float_details(
        self, flag_key: str, default_value: float, evaluation_context: EvaluationContext | None = None
    ) -> FlagResolutionDetails[float]:
        """Choose for a participant; the arm's value is a number."""
        return self._resolve(flag_key, default_value, evaluation_context, float)

    def resolve_object_details(
        self,
        flag_key: str,
        default_value: Sequence[FlagValueType] | Mapping[str, FlagValueType],
        evaluation_context: EvaluationContext | None = None,
    ) -> FlagResolutionDetails[Sequence[FlagValueType] | Mapping[str, FlagValueType]]:
        """Choose for a participant; the arm's value is a mapping or a list."""
        return self._resolve(flag_key, default_value, evaluation_context, dict, list, tuple)

    def track(
        self,
        tracking_event_name: str,
        evaluation_context: EvaluationContext | None = None,
        tracking_event_details: TrackingEventDetails | None = None,
    ) -> None:
        """Report the outcome of a choice; events that are no outcome of a choice are ignored."""
        name = self._outcomes.get(tracking_event_name, tracking_event_name)
        key = _targeting_key(evaluation_context)
        with self._lock:
            flag = None if self._is_other(key) else self._flags.get((name, self._person_key(key)))
            if (flag is None or not flag.arm) and (isinstance(self._client, Client) or not key):
                return
            # A provider that was shut down may be set again, and gets late events.
            self._executor = self._executor or ThreadPoolExecutor(1, "privateer-reports")
            self._executor.submit(self._report, name, key, flag, tracking_event_details)

    def _report(self, name: str, key: str, flag: _Flag | None, details: TrackingEventDetails | None) -> None:
        """Report the value of an event, and give the status or the error to the application's callback."""
        try:
            flag = flag or self._resume_flag(name, key)
            if flag is None:
                return
            status: ReportStatus | PrivateerError = flag.report(details)
        except PrivateerError as error:
            status = error
        if self._reported is not None:
            self._reported(name, status)

    def _resume_flag(self, name: str, key: str) -> _Flag | None:
        """Return the flag of a stored choice of another process, or of a dropped session; None if there is none."""
        assert not isinstance(self._client, Client), "a client's one person is never forgotten"
        try:
            return _Flag(self._client(key).resume(name), fresh=False)
        except InputError:
            return None

    def _person_key(self, key: str) -> str:
        """Return the key of a participant's flags; it is empty for a client of a single participant."""
        return "" if isinstance(self._client, Client) else key

    def _is_other(self, key: str) -> bool:
        """Whether a client of one participant gets a second participant's key; the first key is remembered."""
        if not isinstance(self._client, Client) or not key:
            return False
        self._person = self._person or key
        return key != self._person

    def _choose(self, name: str, key: str, attributes: Mapping[str, Any]) -> tuple[_Flag, str]:
        """Return the participant's flag of an experiment, and its arm; raise `Unavailable` if that takes too long."""
        with self._lock:
            flag = self._flags.pop((name, key), None)
            if flag is not None:
                self._flags[name, key] = flag
        if flag is not None and flag.is_constant:
            return flag, flag.arm

        def choose_in_background(is_awaited: Callable[[], bool]) -> tuple[_Flag, str]:
            new_flag = flag or self._make_flag(name, key)
            return new_flag, new_flag.choose(attributes, is_awaited)

        choice = BackgroundTask(choose_in_background).result(monotonic() + self._within)
        if choice is None:
            raise Unavailable(f"there was no arm within {self._within:g} s", remedy="try again later")
        return choice

    def _make_flag(self, name: str, key: str) -> _Flag:
        """Return a participant's new flag with a session, for which a server is asked, or the flag made meanwhile."""
        client = self._client if isinstance(self._client, Client) else self._client(key)
        new_flag = _Flag(client.session_in_time(name, self._within), fresh=name in self._fresh)
        with self._lock:
            if len(self._flags) >= _SESSIONS_MAX:
                del self._flags[next(iter(self._flags))]
            return self._flags.setdefault((name, key), new_flag)

    def _resolve(
        self, name: str, default: _Value, context: EvaluationContext | None, *kinds: type
    ) -> FlagResolutionDetails[_Value]:
        """Return the value of the participant's arm, or the default with an error code, such as for a wrong type."""
        key = _targeting_key(context)
        if not (isinstance(self._client, Client) or key):
            return _error_details(default, ErrorCode.TARGETING_KEY_MISSING, f"give a targeting key: {_KEY_MESSAGE}")
        with self._lock:
            is_other = self._is_other(key)
        if is_other:
            return _error_details(default, ErrorCode.INVALID_CONTEXT, _OTHER_KEY_MESSAGE)
        try:
            flag, arm = self._choose(name, self._person_key(key), {} if context is None else context.attributes)
        except PrivateerError as error:
            return _error_details(default, _error_code(error), str(error))
        value: Any = self._values.get(name, _BOOLEANS if bool in kinds else {arm: arm}).get(arm)
        value = float(value) if kinds == (float,) and type(value) is int else value
        if type(value) not in kinds:
            detail = f"{name}: the arm has no value of this type: give one in `values`"
            return _error_details(default, ErrorCode.TYPE_MISMATCH, detail)
        facts = {"asked": flag.session.report_requested, "offline": flag.session.offline}
        return FlagResolutionDetails(value, reason=Reason.SPLIT, variant=arm, flag_metadata=facts)


def _targeting_key(context: EvaluationContext | None) -> str:
    """Return the targeting key as a text; empty if there is none."""
    key = None if context is None else context.targeting_key
    return "" if key is None else str(key)


def _error_details(default: _Value, code: ErrorCode, message: str) -> FlagResolutionDetails[_Value]:
    return FlagResolutionDetails(default, code, message, Reason.ERROR)


def _error_code(error: PrivateerError) -> ErrorCode:
    if isinstance(error, NotFound | Deleted):
        return ErrorCode.FLAG_NOT_FOUND
    return ErrorCode.INVALID_CONTEXT if isinstance(error, InputError) else ErrorCode.GENERAL
