"""The session of a client that is one person, which notices that it is given a second one's context."""

from collections.abc import Mapping
from contextlib import suppress
from threading import Lock
from typing import Any
from weakref import WeakKeyDictionary

from typing_extensions import override

from privateer_client.session import Reported, Session
from privateer_core.errors import InputError


class GivenContexts:
    """The contexts in which the sessions that a client still has were asked to choose."""

    def __init__(self) -> None:
        self._lock, self._last = Lock(), WeakKeyDictionary[Any, tuple[str, dict[str, Any]]]()

    def check(self, session: object, name: str, context: Mapping[str, Any]) -> None:
        """Refuse another context than another session of the experiment was given: a client is one person."""
        given = name, dict(context)
        with self._lock:
            others = [known[1] for other, known in self._last.items() if other is not session and known[0] == name]
            if any(not _are_alike(known, context) for known in others):
                raise InputError(
                    "another session of this client has another context, and a Client is one person",
                    field="context",
                    remedy="for each of several people call client.person(key); for one, go on with the first session",
                )
            self._last[session] = given


class OwnSession(Session[Reported]):
    """A `Session` of a client that is one person."""

    def __init__(self, contexts: GivenContexts, *parts: Any) -> None:
        super().__init__(*parts)
        self._contexts = contexts

    @override
    def choose(self, context: Mapping[str, Any] = {}, *, fresh: bool = False, sticky: bool = True) -> Any:
        if isinstance(context, Mapping):  # anything else is refused below
            self._contexts.check(self, self._identity, context)
        return super().choose(context, fresh=fresh, sticky=sticky)


def _are_alike(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return one.keys() == other.keys() and all(_is_same(one[name], other[name]) for name in one)


def _is_same(one: Any, other: Any) -> bool:
    """Whether two values are the same, also those that are not equal to themselves, or have no one answer to that."""
    with suppress(Exception):
        if one == other:
            return True
    return repr(one) == repr(other)
