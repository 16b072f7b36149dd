"""Logs say when, how bad, what and where, and quote nobody."""

import logging
import sys

from privateer.serving.logs import Formatter, trace


def inner(secret: str) -> None:
    raise ValueError(f"bad value {secret}")


def outer(secret: str) -> None:
    inner(secret)


def caught() -> ValueError:
    try:
        outer("0.73")
    except ValueError as error:
        return error
    raise AssertionError


def test_a_trace_has_the_kind_and_the_frames_and_no_message() -> None:
    told = trace(caught())
    names = [part.split()[-1] for part in told.split(" < ")]
    assert names == ["ValueError", "inner", "outer", "caught"]
    assert "test_logs" in told
    assert "0.73" not in told


def test_an_error_that_was_never_raised_is_its_kind() -> None:
    assert trace(KeyError("0.73")) == "KeyError"


def test_the_format_has_time_and_level_and_no_message_of_an_exception() -> None:
    error = caught()
    told = (type(error), error, error.__traceback__)
    record = logging.LogRecord("uvicorn.error", logging.ERROR, __file__, 1, "a request failed", (), told)
    line = Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s").format(record)
    assert "ERROR uvicorn.error: a request failed" in line
    assert line[:4].isdigit()
    assert "ValueError" in line
    assert "inner" in line
    assert "0.73" not in line


def test_an_exception_behind_another_is_not_quoted_either() -> None:
    try:
        try:
            inner("0.73")
        except ValueError as error:
            raise RuntimeError("again 0.73") from error
    except RuntimeError:
        record = logging.LogRecord("x", logging.ERROR, __file__, 1, "failed", (), sys.exc_info())
    assert "0.73" not in Formatter().format(record)
