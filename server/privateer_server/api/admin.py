"""Admin tokens let their bearers do what only operators may."""

from collections.abc import Callable
from typing import Annotated, Final, TypeAlias

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from privateer_core.clock import Clock
from privateer_core.serving.timing import WHO
from privateer_server.admin_tokens import AdminTokens, Scope

_SCHEME: Final = HTTPBearer(scheme_name="admin", description="An operator's token", auto_error=False)
Token: TypeAlias = Annotated[HTTPAuthorizationCredentials | None, Depends(_SCHEME)]
"""The token that a request bears, if it bears one."""


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

    def may(self, scope: Scope) -> Callable[..., str]:
        """Return what a route depends on that needs a scope: it returns how logs name the token.

        What it returns is also in the log line of the request.
        """

        def admitted(request: Request, token: Token = None) -> str:
            given = token.credentials.strip() if token else ""
            who = self._tokens.authorize(given, scope, self._clock.now())
            request.scope[WHO] = who
            return who

        return admitted
