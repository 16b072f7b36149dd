"""What a log says about a defect: its kind and where it happened, never its message, which may quote a value."""

import logging
import sys
import time
import traceback
from types import TracebackType
from typing import Any, Final

import msgspec

from privateer_core.serving.timing import Answered

_FORMAT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_REQUESTS: Final = logging.getLogger("privateer.requests")
_FIELDS: Final = "fields"
"""The attribute of a record with what a line has besides its event."""
_FAULT: Final = 500


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


class JsonFormatter(Formatter):
    """Writes one JSON object a line: time, level, logger, event; of a request what `Answered` has."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        line: dict[str, Any] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(record.created)),
            "level": record.levelname.lower(),
            "logger": record.name,
            # Names of files may have bytes that are no text.
            "event": record.getMessage().encode("utf-8", "backslashreplace").decode(),
        }
        if record.exc_info and record.exc_info[0]:
            line["error"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line | getattr(record, _FIELDS, {})).decode()


def log_answer(answered: Answered) -> None:
    """Log an answer to an operator or another service. What devices ask leaves no line."""
    fields = answered._asdict() | {"seconds": round(answered.seconds, 4)}
    if not answered.by:
        del fields["by"]
    level = logging.WARNING if answered.status >= _FAULT else logging.INFO
    _REQUESTS.log(level, "request", extra={_FIELDS: fields})


def log_to_stderr(*verbose: str, as_json: bool = False) -> None:
    """Write the log of this process to standard error: warnings of all loggers, and more from the ``verbose`` ones.

    As JSON it has the requests of operators and other services, too.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if as_json else Formatter(_FORMAT))
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    for name in verbose:
        logging.getLogger(name).setLevel(logging.INFO)
    _REQUESTS.setLevel(logging.INFO if as_json else logging.CRITICAL)
