"""A hostile server answers the command line with gigabytes, packed, without end, or with what a terminal obeys."""

import gzip
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import pytest

from privateer_core.answer import Answer
from privateer_core.answer.conclusion import Rule, Rules
from privateer_core.answer.shares import ShareSource
from privateer_lab.cli.command_line import main
from privateer_lab.doctor import listeners as answers
from privateer_lab.services import rest
from tests.support.published_answers import document

MIB = 1 << 20
ESCAPES = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202e"


@contextmanager
def hostile(body: bytes, times: int = 1, status: int = 200, **headers: str) -> Iterator[tuple[str, list[int]]]:
    """A server that answers everything with this body so many times over, and how much of it was taken."""
    taken = [0]

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            for name, text in headers.items():
                self.send_header(name.replace("_", "-"), text)
            self.end_headers()
            with suppress(OSError):
                for _ in range(times):
                    self.wfile.write(body)
                    taken[0] += len(body)

        def log_message(self, *_: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", taken
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    said = capsys.readouterr()
    return int(ended.value.code or 0), said.out + said.err


COMMANDS = [
    ["list"],
    ["answer", "test", "--as", "progress"],
    ["answer", "test", "--as", "policy"],
    ["account", "experiment", "test"],
]


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
def test_an_answer_without_end_is_not_read_to_its_end(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    monkeypatch.setattr(rest.bounded_request, "__kwdefaults__", {"bytes_max": 4 * MIB, "seconds": 30.0})
    with hostile(bytes(MIB), times=200) as (url, taken):
        code, text = told(capsys, *arguments, "--url", url)
    assert code == 2
    assert "no Privateer server's" in text
    assert len(text.splitlines()) == 1
    assert taken[0] < 50 * MIB


def test_by_default_an_answer_has_64_mebibytes() -> None:
    assert rest.bounded_request.__kwdefaults__["bytes_max"] == rest.BYTES_MAX == 64 * MIB


def test_a_packed_answer_is_not_unpacked(capsys: pytest.CaptureFixture[str]) -> None:
    packed = gzip.compress(bytes(64 * MIB))
    with hostile(packed, Content_Encoding="gzip", Content_Length=str(len(packed))) as (url, _):
        code, text = told(capsys, "list", "--url", url)
    assert code == 2
    assert "packed" in text


def test_an_answer_that_drips_comes_to_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]

    def monotonic() -> float:
        now[0] += 40
        return now[0]

    monkeypatch.setattr(rest.time, "monotonic", monotonic)
    with hostile(b"x", times=50) as (url, _), pytest.raises(rest.Endless, match="to an end"):
        rest.bounded_request("GET", url)


def test_the_doctor_reads_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rest.bounded_request, "__kwdefaults__", {"bytes_max": MIB, "seconds": 30.0})
    with hostile(bytes(MIB), times=200) as (url, taken):
        assert answers.get(url) is None
    assert taken[0] < 50 * MIB


@pytest.mark.parametrize(
    ("status", "arguments"),
    [(200, ["list"]), (200, COMMANDS[-1]), *((status, words) for status in (404, 500) for words in COMMANDS)],
)
def test_no_text_of_a_server_does_anything_to_a_terminal(
    capsys: pytest.CaptureFixture[str], arguments: list[str], status: int
) -> None:
    row = dict.fromkeys(("name", "status", "model", "algorithm", "detail", "remedy", "field", "title"), f"a{ESCAPES}b")
    row |= {"type": "urn:privateer:problem:conflict"}
    answer = {**row, "version": 1, "accepted": 3, "experiments": [{**row, "version": 1}], f"k{ESCAPES}": [ESCAPES]}
    with hostile(json.dumps(answer).encode(), status=status) as (url, _):
        _, text = told(capsys, *arguments, "--url", url)
    assert text
    assert not set("\x1b\x07\x9b\u202e") & set(text)


def test_what_people_write_comes_through() -> None:
    written = {"levels": ["naïve", "日本", "می\u200cخواهم", "👩\u200d👧"], "share": [1, 0.5, None, True]}
    response = httpx.Response(200, content=json.dumps(written).encode())
    assert rest._object(response) == written


@pytest.mark.parametrize("began", ["yesterday", ESCAPES, "9999-12-31T23:59:59-23:59", "0001-01-01T00:00:00+23:59", 7])
@pytest.mark.parametrize("face", [[], ["--markdown"], ["--json"]], ids=str)
def test_an_answer_that_began_at_no_time_is_none(
    capsys: pytest.CaptureFixture[str], face: list[str], began: Any
) -> None:
    said = document(Answer("learning", 2000, 2, None)) | {"began": began}
    with hostile(json.dumps(said).encode()) as (url, _):
        code, text = told(capsys, "answer", "test", "--url", url, *face)
    assert (code, len(text.splitlines())) == (2, 1)
    assert "the answer is not that of an experiment" in text


@pytest.mark.parametrize("field", ["experiment", "algorithm"])
def test_an_answer_of_an_endless_name_is_none(capsys: pytest.CaptureFixture[str], field: str) -> None:
    said = document(Answer("learning", 2000, 2, None)) | {field: "x" * 100_000}
    with hostile(json.dumps(said).encode()) as (url, _):
        code, text = told(capsys, "answer", "test", "--url", url, "--markdown")
    assert (code, len(text) < 1000) == (2, True)


def test_an_answer_of_rules_without_end_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    rule = Rule("everybody", (), "a", 1.0, None, None, None, 0.5, "not known")
    said = document(Answer("learning", 2000, 2, None), rules=Rules((rule,), None, "people", ShareSource.COUNTED))
    said["conclusion"]["rules"]["rules"] *= 10_000  # a table of 100,000 takes a minute
    with hostile(json.dumps(said).encode()) as (url, _):
        code, text = told(capsys, "answer", "test", "--url", url)
    assert (code, len(text.splitlines())) == (2, 1)
