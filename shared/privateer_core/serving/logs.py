"""Logs of services, and which build of Privateer writes them.

They have events with public facts; of a defect its kind and where it happened, and never its message, which may quote a
value.
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

from privateer_core.serving.http.timing import Answered

_FORMAT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_REQUESTS: Final = logging.getLogger("privateer.requests")
_FIELDS: Final = "fields"
"""The attribute of a record with what a line has besides its event."""
_FAULT: Final = 500
_CLONE: Final = Path(__file__).parents[3]


class Build(msgspec.Struct, frozen=True):
    """Version and commit of what runs; the commit is empty where a package was installed without it."""

    version: str
    commit: str

    def __str__(self) -> str:
        """Return both in one word, as Python's local versions have it."""
        return f"{self.version}+{self.commit[:12]}" if self.commit else self.version


def _find_commit() -> str:
    """Return the commit that an image was told when it was built, or that a clone has checked out."""
    if named := os.environ.get("PRIVATEER_REVISION"):
        return named
    with suppress(OSError, IndexError):
        git = _CLONE / ".git"
        if git.is_file():  # a worktree's names the folder
            git = Path(git.read_text().split(maxsplit=1)[1].strip())
        return (git / "logs" / "HEAD").read_text().splitlines()[-1].split()[1]
    return ""


BUILD: Final = Build(version("privateer-core"), _find_commit())


def trace(error: BaseException) -> str:
    """Return the kind of an error and the functions that it passed through, innermost first."""
    return _described(type(error), error.__traceback__)


def _described(kind: type[BaseException], stack: TracebackType | None) -> str:
    frames = [
        f"{frame.f_globals.get('__name__', '?')}:{line} {frame.f_code.co_name}"
        for frame, line in traceback.walk_tb(stack)
    ]
    return " < ".join([kind.__name__, *reversed(frames)])


def tell(log: logging.Logger, event: str, *, level: int = logging.INFO, **facts: str | int) -> None:
    """Log an event in one line.

    facts: what the line has besides. Each is public, or the operator's own: no context, arm, reward or raw value,
        nothing that a single report moves, and no address of a device.
    """
    log.log(level, event, extra={_FIELDS: facts})


class Formatter(logging.Formatter):
    """Writes time, level, logger, event and facts, and of an exception what `trace` says, whichever library logs it."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the base class chose the name
        """Return the line, with the facts at its end as ``name=value``."""
        facts = getattr(record, _FIELDS, {})
        return " ".join([super().formatMessage(record), *(f"{name}={_shown(value)}" for name, value in facts.items())])

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
            "event": _text(record.getMessage()),
        }
        if record.exc_info and record.exc_info[0]:
            line["error"] = self.formatException(record.exc_info)
        facts = getattr(record, _FIELDS, {})
        line |= {name: _text(value) if isinstance(value, str) else value for name, value in facts.items()}
        return msgspec.json.encode(line).decode()


def _text(said: str) -> str:
    """Return what is said as text that can be encoded."""
    return said.encode("utf-8", "backslashreplace").decode()


def _shown(value: object) -> str:
    """Return a fact as a word; what is none, in quotes."""
    text = str(value)
    is_word = text.isprintable() and text and not set(text) & set(' ="')
    return text if is_word else json.dumps(text)


def log_answer(answered: Answered) -> None:
    """Log an answer to an operator or another service. What devices ask leaves no line."""
    fields = answered._asdict() | {"seconds": round(answered.seconds, 4)}
    if not answered.by:
        del fields["by"]
    level = logging.WARNING if answered.status >= _FAULT else logging.INFO
    _REQUESTS.log(level, "request", extra={_FIELDS: fields})


def log_to_stderr(*verbose: str, as_json: bool = False) -> None:
    """Write the log of this process to standard error: our own events, and warnings of all loggers.

    As JSON it has the requests of operators and other services, too.

    verbose: loggers of our own beside ``privateer``.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if as_json else Formatter(_FORMAT))
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    for name in ("privateer", *verbose):
        logging.getLogger(name).setLevel(logging.INFO)
    _REQUESTS.setLevel(logging.INFO if as_json else logging.CRITICAL)
