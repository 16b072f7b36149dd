"""What the shuffler requires of an experiment's rounds."""

from dataclasses import dataclass
from typing import Final

from privateer_core.errors import SpecError
from privateer_core.wire.publication import Round

BATCH_BYTES_MAX: Final = 1 << 30
"""Sealed bytes of the largest batch: it is assembled in memory, and its disk space is reserved when the round opens."""
MESSAGES_MAX: Final = 1 << 24
"""Sealed messages of the largest batch: a fingerprint of each is in memory."""


@dataclass(frozen=True)
class Requirements:
    """The operator's own conditions.

    Attributes
    ----------
    min_batch
        The shuffler never releases fewer people's reports at once, whatever an experiment asks for.
    """

    min_batch: int

    def check(self, round_: Round) -> None:
        """Refuse a round that may close with too few reports, or is too large to hold.

        Raises
        ------
        SpecError
            Naming the constraint that the experiment misses.
        """
        if round_.fewest < self.min_batch:
            raise SpecError(
                f"rounds of this experiment close at {round_.fewest} reports, "
                f"but this shuffler releases no fewer than {self.min_batch} at once",
                field="privacy.min_batch",
                remedy="create the experiment with larger rounds, or report through another shuffler",
            )
        messages = round_.batch * round_.messages
        if messages > MESSAGES_MAX or messages * round_.sealed_size > BATCH_BYTES_MAX:
            raise SpecError(
                f"a batch of this experiment is larger than {BATCH_BYTES_MAX} bytes or {MESSAGES_MAX} messages",
                field="algorithm.round_size",
                remedy="create the experiment with smaller rounds",
            )
