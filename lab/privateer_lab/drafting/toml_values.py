"""Values of a file as TOML, whatever letters their names have."""

import json
from collections.abc import Mapping
from typing import Any


def toml(value: Any) -> str:
    """Write a value as TOML; letters that control a terminal or turn what follows around are written by number."""
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{key_of(key)} = {toml(one)}" for key, one in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(toml, value)) + "]"
    return _text(value) if isinstance(value, str) else json.dumps(value)


def key_of(name: str) -> str:
    """Write the name of a key."""
    plain = name.isascii() and name.replace("-", "").replace("_", "").isalnum()
    return name if plain else toml(name)


def _text(text: str) -> str:
    """Quote a text; JSON's way with letters beyond 16 bits is not TOML's."""
    quoted = json.dumps(text, ensure_ascii=False)
    return "".join(one if one.isprintable() else f"\\U{ord(one):08x}" for one in quoted)
