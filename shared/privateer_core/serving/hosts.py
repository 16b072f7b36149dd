"""The names by which the private listener is called.

A page in an operator's browser can have its own name resolve to this machine (DNS rebinding): the browser then takes
what answers here for the page's own site, and lets it read. It still sends the page's name. So a name that the operator
did not give is refused. Addresses in digits are nobody's name, and are taken.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from ipaddress import ip_address
from typing import Final

from starlette.types import ASGIApp, Receive, Scope, Send

from privateer_core.errors import SpecError
from privateer_core.serving.endpoint import Reply
from privateer_core.serving.problems import HostRefused, problem_answer

VARIABLE: Final = "PRIVATEER_ADMIN_NAMES"
_NAME: Final = re.compile(r"[a-z0-9_]([a-z0-9._-]{0,251}[a-z0-9_])?")
_HOST: Final = re.compile(r"(?:\[(?P<v6>[0-9a-f:.]+)\]|(?P<name>[^\[\]:@/\s]+))(?::[0-9]{0,5})?")
_LOCAL: Final = "localhost"
"""It and all names below it are this machine's own (RFC 6761, section 6.3)."""


def host_names(variables: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names that ``PRIVATEER_ADMIN_NAMES`` lists; none if it is missing or empty.

    Raises
    ------
    SpecError
        If one is no name of a host.
    """
    named = tuple(variables.get(VARIABLE, "").replace(",", " ").split())
    for one in named:
        if not _NAME.fullmatch(one):
            remedy = "list names such as server.internal in lower case, without ports, separated by commas"
            raise SpecError(f"{one!r} is no name of a host", field=VARIABLE, remedy=remedy)
    return named


class Hosts:
    """ASGI middleware of a private listener, which answers only to its own names.

    Parameters
    ----------
    app
        The listener's pages; it may answer some requests ``at_once``.
    names
        Names besides those of the loopback interface, such as the one that it listens at.
    """

    def __init__(self, app: ASGIApp, names: Iterable[str]) -> None:
        self._app, self._names = app, frozenset(name.lower() for name in names)
        self._at_once: Callable[[Scope, bytearray, Reply], bool] = getattr(app, "at_once", lambda *_: False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse its name."""
        if scope["type"] == "http" and not self._is_ours(scope):
            detail = "the private listener is not known by this name"
            refused = HostRefused(
                detail, field="Host", remedy=f"call it by its address, or list the name in {VARIABLE}"
            )
            await problem_answer(refused).send(scope, send)
        else:
            await self._app(scope, receive, send)

    def at_once(self, scope: Scope, body: bytearray, reply: Reply) -> bool:
        """Pass on a request that is there as a whole; False if ``__call__`` must answer it."""
        return self._is_ours(scope) and self._at_once(scope, body, reply)

    def _is_ours(self, scope: Scope) -> bool:
        given = [value for name, value in scope["headers"] if name == b"host"]
        found = _HOST.fullmatch(given[0].decode("latin-1").lower()) if len(given) == 1 else None
        if found is None:
            return False
        name = found["v6"] or found["name"].removesuffix(".")
        return name in self._names or name == _LOCAL or name.endswith(f".{_LOCAL}") or _is_address(name)


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
