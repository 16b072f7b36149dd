"""Logs of services, and the build of Privateer that writes them.

They have events with public facts; of a defect its type and location, and never its message, which may quote a value.
"""

import json
import logging
import os
import sys
import time
import traceback
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import msgspec

from privateer_core.serving.http.answer import AnswerTiming

_FORMAT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_request_log: Final = logging.getLogger("privateer.requests")
_FACTS_ATTRIBUTE: Final = "fields"
"""The attribute of a log record with the facts of its event."""
_SERVER_ERROR_STATUS: Final = 500
_REPOSITORY: Final = Path(__file__).parents[3]


class Build(msgspec.Struct, frozen=True):
    """Version and commit of the running code; the commit is empty if it is unknown."""

    version: str
    commit: str

    def __str__(self) -> str:
        """Return version and commit as a Python version with a local part."""
        return f"{self.version}+{self.commit[:12]}" if self.commit else self.version


def _find_commit() -> str:
    """Return the commit in ``PRIVATEER_REVISION``, which images have, or that of a clone's work tree."""
    if revision := os.environ.get("PRIVATEER_REVISION"):
        return revision
    with suppress(OSError, IndexError):
        git = _REPOSITORY / ".git"
        if git.is_file():  # a worktree's names the folder
            git = Path(git.read_text().split(maxsplit=1)[1].strip())
        return (git / "logs" / "HEAD").read_text().splitlines()[-1].split()[1]
    return ""


BUILD: Final = Build(version("privateer-core"), _find_commit())


def trace(error: BaseException) -> str:
    """Return the type of an error and the functions of its traceback, innermost first."""
    return _format_trace(type(error), error.__traceback__)


def _format_trace(kind: type[BaseException], stack: TracebackType | None) -> str:
    frames = traceback.walk_tb(stack)
    calls = [f"{frame.f_globals.get('__name__', '?')}:{line} {frame.f_code.co_name}" for frame, line in frames]
    return " < ".join([kind.__name__, *reversed(calls)])


def log_event(log: logging.Logger, event: str, *, level: int = logging.INFO, **facts: str | int) -> None:
    """Log an event in one line.

    facts: further fields of the line. Each is public, or the operator's own: no context, arm, reward or raw value,
        no number that depends on a single report, and no address of a device.
    """
    log.log(level, event, extra={_FACTS_ATTRIBUTE: facts})


class Formatter(logging.Formatter):
    """A formatter for lines with time, level, logger, event and facts, and the `trace` of an exception."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the base class chose the name
        """Return the line, with the facts at its end as ``name=value``."""
        facts = [f"{name}={_format_fact(value)}" for name, value in getattr(record, _FACTS_ATTRIBUTE, {}).items()]
        return " ".join([super().formatMessage(record), *facts])

    def formatException(self, ei: object) -> str:  # noqa: N802 - the base class chose the name
        """Return the type of an exception and its stack, without its message."""
        assert isinstance(ei, tuple)
        return _format_trace(ei[0], ei[2]) if ei[0] else ""


class JsonFormatter(Formatter):
    """A formatter for JSON lines with time, level, logger, event and facts, or the fields of `AnswerTiming`."""

    def format(self, record: logging.LogRecord) -> str:
        """Return a log record as a line of JSON."""
        line: dict[str, Any] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(record.created)),
            "level": record.levelname.lower(),
            "logger": record.name,
            # Names of files may have bytes that are no text.
            "event": _encodable_text(record.getMessage()),
        }
        if record.exc_info and record.exc_info[0]:
            line["error"] = self.formatException(record.exc_info)
        facts = getattr(record, _FACTS_ATTRIBUTE, {})
        line |= {name: _encodable_text(value) if isinstance(value, str) else value for name, value in facts.items()}
        return msgspec.json.encode(line).decode()


def _encodable_text(text: str) -> str:
    """Escape the characters of a text that cannot be encoded."""
    return text.encode("utf-8", "backslashreplace").decode()


def _format_fact(value: object) -> str:
    """Format a fact as a word, or as a quoted text if it is not a word."""
    text = str(value)
    is_word = text.isprintable() and text and not set(text) & set(' ="')
    return text if is_word else json.dumps(text)


def log_answer(timing: AnswerTiming) -> None:
    """Log an answer to an operator or another service. Requests of devices are not logged."""
    fields = timing._asdict() | {"seconds": round(timing.seconds, 4)}
    if not timing.by:
        del fields["by"]
    level = logging.WARNING if timing.status >= _SERVER_ERROR_STATUS else logging.INFO
    _request_log.log(level, "request", extra={_FACTS_ATTRIBUTE: fields})


def log_to_stderr(*extra_loggers: str, as_json: bool = False) -> None:
    """Write the log of this process to standard error: Privateer's events, and warnings of all loggers.

    As JSON it has the requests of operators and other services, too.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if as_json else Formatter(_FORMAT))
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    for name in ("privateer", *extra_loggers):
        logging.getLogger(name).setLevel(logging.INFO)
    _request_log.setLevel(logging.INFO if as_json else logging.CRITICAL)
