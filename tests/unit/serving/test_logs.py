"""Logs of services, their processes, and their command lines."""

import json
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from privateer_core.errors import SpecError
from privateer_core.serving.logs import BUILD, Formatter, JsonFormatter, log_event, trace
from privateer_core.serving.settings import PrivatePort, PublicPort, ServiceSettings, is_json_log
from privateer_issuer.app import main as issuer
from privateer_server.settings import read_settings
from privateer_shuffler.app import main as shuffler


def inner(secret: str) -> None:
    raise ValueError(f"bad value {secret}")


def outer(secret: str) -> None:
    inner(secret)


def raise_error() -> ValueError:
    try:
        outer("0.73")
    except ValueError as error:
        return error
    raise AssertionError


def test_a_trace_has_the_kind_and_the_frames_and_no_message() -> None:
    text = trace(raise_error())
    names = [part.split()[-1] for part in text.split(" < ")]
    assert names == ["ValueError", "inner", "outer", "raise_error"]
    assert "test_logs" in text
    assert "0.73" not in text


def test_the_trace_of_an_unraised_error_is_its_type() -> None:
    assert trace(KeyError("0.73")) == "KeyError"


def test_the_format_has_time_and_level_and_no_message_of_an_exception() -> None:
    error = raise_error()
    exc_info = (type(error), error, error.__traceback__)
    record = logging.LogRecord("uvicorn.error", logging.ERROR, __file__, 1, "a request failed", (), exc_info)
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


def test_json_is_one_object_a_line_and_quotes_no_exception() -> None:
    error = raise_error()
    exc_info = (type(error), error, error.__traceback__)
    record = logging.LogRecord("uvicorn.error", logging.ERROR, __file__, 1, "line\n%s", ("two",), exc_info)
    record.created = 1_767_225_600.9
    line = JsonFormatter().format(record)
    assert "\n" not in line
    assert "0.73" not in line
    assert json.loads(line) == {
        "time": "2026-01-01T00:00:00Z",
        "level": "error",
        "logger": "uvicorn.error",
        "event": "line\ntwo",
        "error": trace(error),
    }


def write_line(caplog: pytest.LogCaptureFixture, event: str, **facts: str | int) -> tuple[str, dict[str, object]]:
    """An event as both forms have it."""
    caplog.set_level(logging.INFO)
    log_event(logging.getLogger("privateer.server"), event, **facts)
    record = caplog.records[-1]
    text = Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s").format(record)
    return text.split(" ", 2)[2], json.loads(JsonFormatter().format(record))


def test_an_event_has_its_facts_in_both_forms(caplog: pytest.LogCaptureFixture) -> None:
    text, line = write_line(caplog, "round closed", experiment="trial", round=3, reports=1000)
    assert text == "INFO privateer.server: round closed experiment=trial round=3 reports=1000"
    del line["time"]
    named = {"level": "info", "logger": "privateer.server", "event": "round closed"}
    assert line == named | {"experiment": "trial", "round": 3, "reports": 1000}


@pytest.mark.parametrize(
    ("value", "printed"),
    [
        ("alice 5f0c12ab", '"alice 5f0c12ab"'),
        ("a\nb c=d", '"a\\nb c=d"'),
        ("", '""'),
        ('say "x"', '"say \\"x\\""'),
        ("/data/\udcff", '"/data/\\udcff"'),
    ],
)
def test_a_fact_stays_one_word_of_one_line(value: str, printed: str, caplog: pytest.LogCaptureFixture) -> None:
    """Names of folders may have arbitrary characters."""
    text, line = write_line(caplog, "started", data=value, version="1")
    assert text == f"INFO privateer.server: started data={printed} version=1"
    assert line["data"] == value.encode("utf-8", "backslashreplace").decode()


class AnyService(ServiceSettings):
    port: PublicPort = 1
    admin_port: PrivatePort = 2


def test_an_unknown_log_format_is_refused() -> None:
    assert [is_json_log({"PRIVATEER_LOG_FORMAT": form} if form else {}) for form in ("", "text", "json")] == [
        False,
        False,
        True,
    ]
    for form in ("", "text", "json"):
        assert AnyService.read({"PRIVATEER_LOG_FORMAT": form}).log_format == (form or "text")
    with pytest.raises(SpecError, match=r"PRIVATEER_LOG_FORMAT: is no form of logs \(set it to text or json\)"):
        AnyService.read({"PRIVATEER_LOG_FORMAT": "yaml"})


@pytest.mark.parametrize(
    ("module", "form", "says"),
    [
        ("privateer_server.app", "json", "PRIVATEER_PORT: "),
        ("privateer_shuffler.app", "json", "PRIVATEER_PORT: "),
        ("privateer_issuer.app", "json", "PRIVATEER_PORT: "),
        ("privateer_issuer.app", "yaml", "PRIVATEER_LOG_FORMAT: "),
    ],
)
def test_a_failed_start_is_reported_in_the_log_format(module: str, form: str, says: str, tmp_path: Path) -> None:
    settings = {"PRIVATEER_DATA": str(tmp_path), "PRIVATEER_PORT": "many", "PRIVATEER_ADMIN_TOKEN": "x" * 16}
    process = subprocess.run(
        [sys.executable, "-P", "-c", f"from {module} import main; main()"],
        env=os.environ | settings | {"PRIVATEER_LOG_FORMAT": form},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (process.returncode, process.stdout, process.stderr.count("\n")) == (2, "", 1)
    if form == "json":
        line = json.loads(process.stderr)
        assert (line["level"], line["event"].startswith(says)) == ("critical", True)
    else:
        assert says in process.stderr


_CODE = """
import resource
from privateer_core.serving.process import prepare_process
resource.setrlimit(resource.RLIMIT_CORE, (resource.getrlimit(resource.RLIMIT_CORE)[1],) * 2)
prepare_process()
print(resource.getrlimit(resource.RLIMIT_CORE))
"""


def test_a_process_that_crashes_leaves_no_keys_in_a_core_file() -> None:
    process = subprocess.run([sys.executable, "-c", _CODE], capture_output=True, text=True, check=True)
    assert process.stdout == "(0, 0)\n"


SERVICES = {"server": lambda arguments: read_settings({}, arguments), "shuffler": shuffler, "issuer": issuer}


@pytest.fixture(params=SERVICES)
def service(request, capsys):
    """The name of a service, and what its command line prints: exit code, output and errors."""

    def run(*arguments):
        with pytest.raises(SystemExit) as stop:
            SERVICES[request.param](arguments)
        return stop.value.code, *capsys.readouterr()

    return f"privateer-{request.param}", run


def test_help_and_version_of_a_service(service):
    """Neither needs a setting."""
    name, run = service
    assert run("--version") == (0, f"{name} {BUILD}\n", "")
    code, text, _ = run("--help")
    assert code == 0
    assert "docs/configuration.md" in " ".join(text.split())


@pytest.mark.parametrize("argument", ["--prot=1", "folder"])
def test_unknown_arguments_are_refused_in_one_line(service, argument):
    """A mistyped flag must not start a service with its default."""
    name, run = service
    assert run(argument) == (2, "", f"{name}: unrecognized arguments: {argument} (see {name} --help)\n")
