"""The session of a client of a single participant, which refuses the context of a second participant."""

from collections.abc import Mapping
from contextlib import suppress
from threading import Lock
from typing import Any
from weakref import WeakKeyDictionary

from typing_extensions import override

from privateer_client.session import Reported, Session
from privateer_core.errors import InputError


class SessionContexts:
    """The last context of each live session of a client."""

    def __init__(self) -> None:
        self._lock, self._last = Lock(), WeakKeyDictionary[Any, tuple[str, dict[str, Any]]]()

    def check(self, session: object, name: str, context: Mapping[str, Any]) -> None:
        """Refuse a context that differs from that of another session of the experiment."""
        with self._lock:
            others = [named_context for other, named_context in self._last.items() if other is not session]
            if any(other_name == name and not _are_alike(previous, context) for other_name, previous in others):
                detail = "another session of this client has another context, and a Client is one person"
                remedy = "for each of several people call client.person(key); for one, go on with the first session"
                raise InputError(detail, field="context", remedy=remedy)
            self._last[session] = name, dict(context)


class OwnSession(Session[Reported]):
    """A `Session` of a client of a single participant."""

    def __init__(self, contexts: SessionContexts, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._contexts = contexts

    @override
    def choose(self, context: Mapping[str, Any] = {}, *, fresh: bool = False, sticky: bool = True) -> Any:
        if isinstance(context, Mapping):  # anything else is refused below
            self._contexts.check(self, self._identity, context)
        return super().choose(context, fresh=fresh, sticky=sticky)


def _are_alike(left: Mapping[str, Any], right: Mapping[str, Any]) -> bool:
    return left.keys() == right.keys() and all(_is_same(left[name], right[name]) for name in left)


def _is_same(left: Any, right: Any) -> bool:
    """Whether two values are equal or have the same representation, as NaN and arrays do."""
    with suppress(Exception):
        if left == right:
            return True
    return repr(left) == repr(right)
