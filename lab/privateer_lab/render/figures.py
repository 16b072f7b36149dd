"""Figures as text, for readers."""

from typing import Any, Final

_MAX_LIST_ITEMS: Final = 8
"""Largest number of elements in a printed list."""


def format_figure(value: Any) -> str:
    """Format a figure for readers: thousands separated, four significant digits, yes or no, and zero without a sign."""
    if value is None:
        return "none"
    if isinstance(value, list):
        text = ", ".join(format_figure(element) for element in value[:_MAX_LIST_ITEMS])
        return text if len(value) <= _MAX_LIST_ITEMS else f"{text}, ... ({len(value):,} in all)"
    if isinstance(value, dict):
        return ", ".join(f"{name} {format_figure(element)}" for name, element in value.items())
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:z,.0f}" if abs(value) >= 100 else f"{value:z.4g}"
    return f"{value:,}" if isinstance(value, int) else str(value)
