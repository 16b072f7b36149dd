"""The source of shares of people."""

from enum import StrEnum
from typing import Final


class ShareSource(StrEnum):
    """The source of shares of people, which every statement about shares includes."""

    COUNTED = "counted"
    """Reports were counted, with the noise of their promise."""
    ASKED = "asked"
    """Participants reported their group."""
    DECLARED = "declared"
    """The spec declares the shares, and no reports counted them."""
    ASSUMED = "assumed"
    """The distribution of people is unknown."""

    @property
    def sentence(self) -> str:
        """The source in words."""
        return _SENTENCES[self]


_SENTENCES: Final = {
    ShareSource.COUNTED: "Shares of people are counted.",
    ShareSource.ASKED: "Shares of people are estimated from people who were asked for their segment.",
    ShareSource.DECLARED: "Shares of people are those that the spec declares: nobody counted them.",
    ShareSource.ASSUMED: (
        "Shares are of people spread evenly over what the spec declares: nothing is known of who comes."
    ),
}
