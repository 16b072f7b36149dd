"""The admin token lets its bearer do what only the operator may."""

import hmac
from typing import Final

from privateer.errors import Unauthorized
from privateer_server.settings import token_digest

_NAME_BYTES: Final = 4


def authorize(authorization: str, admitted: bytes) -> str:
    """See that a request bears the admin token, whose digest is ``admitted``, and return the token's name for logs.

    Raises
    ------
    Unauthorized
        If it does not.
    """
    scheme, _, token = authorization.partition(" ")
    if not (scheme.lower() == "bearer" and hmac.compare_digest(token_digest(token.strip()), admitted)):
        raise Unauthorized("the admin token is missing or wrong", remedy="send Authorization: Bearer TOKEN")
    # So few bits of a digest name a token among an operator's, and help nobody to find it.
    return f"admin {admitted[:_NAME_BYTES].hex()}"
