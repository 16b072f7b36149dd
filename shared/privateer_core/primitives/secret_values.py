"""Values that are secret, of participants."""

from typing import Any

import msgspec


class SecretValues(msgspec.Struct, frozen=True):
    """A base of values of participants that no representation shows, so that no log and no traceback has them."""

    __repr__ = object.__repr__

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        """Return nothing to tracebacks by rich."""
        return []
