"""The admin token lets its bearer do what only the operator may."""

import hmac
from typing import Annotated, Final, TypeAlias

from fastapi import Depends
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from privateer.errors import Unauthorized
from privateer_server.settings import token_digest

_NAME_BYTES: Final = 4
_SCHEME: Final = HTTPBearer(scheme_name="admin", description="The operator's token", auto_error=False)
Token: TypeAlias = Annotated[HTTPAuthorizationCredentials | None, Depends(_SCHEME)]
"""The token that a request bears, if it bears one."""


def authorize(token: HTTPAuthorizationCredentials | None, admitted: bytes) -> str:
    """See that a request bears the admin token, whose digest is ``admitted``, and return the token's name for logs.

    Raises
    ------
    Unauthorized
        If it does not.
    """
    if token is None or not hmac.compare_digest(token_digest(token.credentials.strip()), admitted):
        raise Unauthorized("the admin token is missing or wrong", remedy="send Authorization: Bearer TOKEN")
    # So few bits of a digest name a token among an operator's, and help nobody to find it.
    return f"admin {admitted[:_NAME_BYTES].hex()}"
