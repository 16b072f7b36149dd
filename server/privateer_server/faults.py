"""What a log may say of a defect: its kind and where it happened, never a message, since that may quote a value."""

import logging
import sys
import traceback
from types import TracebackType
from typing import Final

_FORMAT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def trace(error: BaseException) -> str:
    """Name the kind of an error, and the functions that it came through, innermost first."""
    return _described(type(error), error.__traceback__)


def _described(kind: type[BaseException], stack: TracebackType | None) -> str:
    frames = [
        f"{frame.f_globals.get('__name__', '?')}:{line} {frame.f_code.co_name}"
        for frame, line in traceback.walk_tb(stack)
    ]
    return " < ".join([kind.__name__, *reversed(frames)])


class Formatter(logging.Formatter):
    """Formats time, level and message; of an exception it shows what `trace` does, whichever library logs it."""

    def formatException(self, ei: object) -> str:  # noqa: N802 - the base class names it
        """Name the kind of an exception and its stack, without its message."""
        assert isinstance(ei, tuple)
        return _described(ei[0], ei[2]) if ei[0] else ""


def log_to_stderr() -> None:
    """Have this process write its log, and that of the libraries it uses, to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Formatter(_FORMAT))
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
