"""Text that others wrote, made fit for a screen."""


def printable(text: str) -> str:
    """The text on one line, and without what would steer a terminal."""
    return "".join(one if one.isprintable() else "?" for one in text)
