"""The address of a sender, which is kept in memory while the request is answered, and nowhere else."""

from ipaddress import ip_network
from typing import Any, Final

_OWNED: Final = 64
"""Bits of an IPv6 address that one subscriber does not choose."""


def peer(scope: Any) -> str:
    """Return the address at the other end of a connection, from an ASGI scope. For IPv6 it is the network."""
    client = scope.get("client")
    address = str(client[0]) if client else ""
    return str(ip_network((address, _OWNED), strict=False)) if ":" in address else address
