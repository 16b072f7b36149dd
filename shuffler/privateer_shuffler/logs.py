"""The log: when, how grave, what; of a defect the place in the code, and no value that it had in hand."""

import logging
import traceback
from types import TracebackType
from typing import Final

_FORMAT: Final = "%(asctime)s %(levelname)s %(message)s"


class Formatter(logging.Formatter):
    """Tells an exception by its frames and its type: its message may quote what somebody sent."""

    def __init__(self) -> None:
        super().__init__(_FORMAT)

    def formatException(  # noqa: N802
        self,
        ei: tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None],
    ) -> str:
        """The frames, outermost first, and the type."""
        frames = [f"  {frame.filename}:{frame.lineno} {frame.name}" for frame in traceback.extract_tb(ei[2])]
        return "\n".join([*frames, f"  {ei[0].__name__ if ei[0] else 'no exception'}"])


def start_logging() -> None:
    """Write warnings of all libraries, and what the shuffler does, to standard error."""
    handler = logging.StreamHandler()
    handler.setFormatter(Formatter())
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    logging.getLogger("privateer_shuffler").setLevel(logging.INFO)
