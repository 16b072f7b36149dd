"""What a log says about a defect: its kind and where it happened, never its message, which may quote a value."""

import logging
import sys
import traceback
from types import TracebackType
from typing import Final

_FORMAT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def trace(error: BaseException) -> str:
    """Return the kind of an error and the functions that it passed through, innermost first."""
    return _described(type(error), error.__traceback__)


def _described(kind: type[BaseException], stack: TracebackType | None) -> str:
    frames = [
        f"{frame.f_globals.get('__name__', '?')}:{line} {frame.f_code.co_name}"
        for frame, line in traceback.walk_tb(stack)
    ]
    return " < ".join([kind.__name__, *reversed(frames)])


class Formatter(logging.Formatter):
    """Writes time, level, logger and message, and of an exception what `trace` says, whichever library logs it."""

    def formatException(self, ei: object) -> str:  # noqa: N802 - the base class chose the name
        """Return the kind of an exception and its stack, without its message."""
        assert isinstance(ei, tuple)
        return _described(ei[0], ei[2]) if ei[0] else ""


def log_to_stderr(*verbose: str) -> None:
    """Write the log of this process to standard error: warnings of all loggers, and more from the ``verbose`` ones."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Formatter(_FORMAT))
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    for name in verbose:
        logging.getLogger(name).setLevel(logging.INFO)
