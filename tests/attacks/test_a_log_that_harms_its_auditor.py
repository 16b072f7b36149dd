"""A server whose log is made to harm whoever follows it: names that steer a terminal, and answers without end."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from privateer_core.wire.publication import digest
from privateer_core.wire.transparency_log import Entry
from privateer_lab.cli.command_line import main
from tests.support.notary import Notary

STEERING = "\x1b]0;owned\x07\x1b[2J"
MOST = 80 << 20
"""Bytes after which nobody believes that the answer ends."""


def follow(monkeypatch: pytest.MonkeyPatch, folder: Path, answer: Any) -> int:
    """Run ``privateer log check`` on a scripted server, and return its exit code."""
    real = httpx.Client
    monkeypatch.setattr(httpx, "Client", lambda **how: real(**how, transport=httpx.MockTransport(answer)))
    monkeypatch.chdir(folder)
    with pytest.raises(SystemExit) as ended:
        main(["log", "check", "http://server"])
    return int(ended.value.code or 0)


def scripted(notary: Notary) -> Any:
    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/log/key":
            return httpx.Response(200, json={"key": notary.key})
        if request.url.path == "/log/head":
            return httpx.Response(200, text=notary.head().signed)
        listed = [
            {"experiment": one.experiment, "version": one.version, "digest": one.digest.hex()} for one in notary.entries
        ]
        return httpx.Response(200, json={"entries": listed})

    return answer


def test_names_in_a_log_do_not_steer_the_terminal(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    notary = Notary()
    for one in (b"1", b"2"):
        notary.enter(Entry(STEERING, 1, digest(one)))
    assert follow(monkeypatch, tmp_path, scripted(notary)) == 1
    told = "".join(capfd.readouterr())
    assert "another publication" in told
    assert "\x1b" not in told
    assert "\x07" not in told
    assert (tmp_path / "evidence.json").exists()


@pytest.mark.parametrize("page", ["/log/key", "/log/head", "/log/entries"])
def test_an_answer_without_end_is_not_read_to_its_end(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, page: str
) -> None:
    notary, sent = Notary(), [0]
    notary.enter(Entry("test", 1, digest(b"1")))

    def endless() -> Iterator[bytes]:
        while sent[0] < 2 * MOST:
            sent[0] += 1 << 20
            yield bytes(1 << 20)

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path == page:
            return httpx.Response(200, content=endless())
        honest: httpx.Response = scripted(notary)(request)
        return honest

    assert follow(monkeypatch, tmp_path, answer) == 2
    assert sent[0] <= MOST
