"""Text from strangers, made safe for a terminal."""


def printable(text: str) -> str:
    """Return the text on one line, without characters that control a terminal."""
    return "".join(one if one.isprintable() else "?" for one in text)
