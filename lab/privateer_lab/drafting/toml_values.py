"""Formatting of values and keys as TOML, whatever characters they contain."""

import json
from collections.abc import Mapping
from typing import Any


def to_toml(value: Any) -> str:
    """Format a value as TOML; control characters and marks of text direction are escaped."""
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{format_key(key)} = {to_toml(member)}" for key, member in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(to_toml, value)) + "]"
    if not isinstance(value, str):
        return json.dumps(value)
    # JSON's escapes of characters beyond 16 bits are not TOML's.
    quoted = json.dumps(value, ensure_ascii=False)
    return "".join(character if character.isprintable() else f"\\U{ord(character):08x}" for character in quoted)


def format_key(name: str) -> str:
    """Format a key, quoted unless it is a bare key."""
    is_bare = name.isascii() and name.replace("-", "").replace("_", "").isalnum()
    return name if is_bare else to_toml(name)
