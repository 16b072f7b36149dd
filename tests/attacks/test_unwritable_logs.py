"""What is no text stays one line of JSON: Python's own complaint would have the stack on many lines."""

import io
import json
import logging

from privateer_core.serving.logs import JsonFormatter

NO_TEXT = b"data-\xff".decode("utf-8", "surrogateescape")
"""Python reads the name of a folder that is not in UTF-8 like this."""


def test_a_name_that_is_no_text_is_one_line_of_json() -> None:
    lines = io.StringIO()
    handler = logging.StreamHandler(lines)
    handler.setFormatter(JsonFormatter())
    handler.handle(logging.LogRecord("privateer", logging.WARNING, "", 0, "there is no folder %s", (NO_TEXT,), None))
    assert json.loads(lines.getvalue())["event"] == "there is no folder data-\\udcff"
    assert lines.getvalue().count("\n") == 1
