"""The admin token lets its bearer do what only the operator may."""

import hmac

from privateer.errors import Unauthorized
from privateer_server.settings import token_digest


def authorize(authorization: str, admitted: bytes) -> None:
    """See that a request bears the admin token, whose digest is ``admitted``.

    Raises
    ------
    Unauthorized
        If it does not.
    """
    scheme, _, token = authorization.partition(" ")
    if not (scheme.lower() == "bearer" and hmac.compare_digest(token_digest(token.strip()), admitted)):
        raise Unauthorized("the admin token is missing or wrong", remedy="send Authorization: Bearer TOKEN")
