"""Parts of answers that a server sends, as JSON."""

from typing import Any


def fact(answer: dict[str, Any], name: str) -> Any:
    """The value of a fact."""
    facts = [fact for part in answer["parts"] if part["kind"] == "figures" for fact in part["facts"]]
    (value,) = (entry["value"] for entry in facts if entry["name"] == name)
    return value
