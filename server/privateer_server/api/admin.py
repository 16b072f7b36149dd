"""Admin tokens let their bearers do what only operators may."""

import logging
from collections.abc import Callable
from ipaddress import ip_address
from typing import Annotated, Final, TypeAlias

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from privateer_core.clock import Clock
from privateer_core.errors import ScopeMissing, Unauthorized
from privateer_core.serving.logs import tell
from privateer_core.serving.timing import WHO, known_method
from privateer_server.admin_tokens import AdminTokens, Scope

_SCHEME: Final = HTTPBearer(scheme_name="admin", description="An operator's token", auto_error=False)
Token: TypeAlias = Annotated[HTTPAuthorizationCredentials | None, Depends(_SCHEME)]
"""The token that a request bears, if it bears one."""
_QUIET_SECONDS: Final = 1.0
"""Refusals that come sooner after a line have none of their own: whoever guesses tokens must not fill the log."""
_log = logging.getLogger("privateer.admin")


class Admins:
    """Checks what the bearer of a token may do at the private listener.

    Parameters
    ----------
    tokens
        What is compared.
    clock
        Says which tokens have expired.
    """

    def __init__(self, tokens: AdminTokens, clock: Clock) -> None:
        self._tokens, self._clock = tokens, clock
        self._told, self._untold = -_QUIET_SECONDS, 0

    def may(self, scope: Scope) -> Callable[..., str]:
        """Return what a route depends on that needs a scope: it returns how logs name the token.

        What it returns is also in the log line of the request.
        """

        def admitted(request: Request, token: Token = None) -> str:
            given = token.credentials.strip() if token else ""
            try:
                who = self._tokens.authorize(given, scope, self._clock.now())
            except (Unauthorized, ScopeMissing) as refused:
                self._tell(request, refused)
                raise
            request.scope[WHO] = who
            return who

        return admitted

    def _tell(self, request: Request, refused: Unauthorized | ScopeMissing) -> None:
        """Log a refusal: what was wanted, why not, and from what kind of address; nothing of what was sent."""
        now = self._clock.monotonic()
        if now - self._told < _QUIET_SECONDS:
            self._untold += 1
            return
        wanted = f"{known_method(request.scope)} {getattr(request.scope.get('route'), 'path', '')}"
        more = {"more_since_the_line_before": self._untold} if self._untold else {}
        facts = {"wanted": wanted, "sender": _kind(request), "why": refused.detail}
        tell(_log, "operator refused", level=logging.WARNING, **facts, **more)
        self._told, self._untold = now, 0


def _kind(request: Request) -> str:
    """Return what kind of address a request comes from: a log keeps no addresses."""
    try:
        address = ip_address(request.client.host if request.client else "")
    except ValueError:
        return "an unknown address"
    if address.is_loopback:
        return "this machine"
    return "a private network" if address.is_private else "a public address"
