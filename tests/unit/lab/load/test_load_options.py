"""The load driver's options, and how it ends."""

import asyncio
import json
import os
import signal
import subprocess
import sys

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from privateer_core.errors import NotFound, SpecError
from privateer_core.wire.problem import problem_body
from privateer_core.wire.publication import report_header
from privateer_lab.load import command
from privateer_lab.load.command import main
from privateer_lab.load.driver import Driver, LoadResult
from privateer_lab.load.wire import Wire
from privateer_lab.render.words import format_figure
from privateer_server.rounds.open_round import open_first_round
from tests.support.phased import phased_spec

KEY = X25519PrivateKey.generate().public_key().public_bytes_raw()
SMALL = {"experiment.horizon": 600, "algorithm.alpha": 0.2, "algorithm.participants_factor": 20}


@pytest.mark.parametrize("address", ["ftp://127.0.0.1", "127.0.0.1:1", "http://", "nonsense"])
async def test_a_malformed_shuffler_url_is_refused_at_once(address: str) -> None:
    first = open_first_round(phased_spec(SMALL, "shuffle"), KEY)
    async with Wire.open("test", "http://127.0.0.1:1", address, 1) as wire, asyncio.timeout(5):
        with pytest.raises(SpecError, match="--shuffler"):
            await wire.send(report_header(first.round, first.digest), b"sealed", 1, "shuffler")


def test_a_seed_below_0_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["test", "--seed", "-1"])
    err = capsys.readouterr().err
    assert (stop.value.code, err.count("\n"), "--seed" in err) == (2, 1, True)


def test_ctrl_c_is_no_traceback() -> None:
    code = "import os, signal; from privateer_lab.load import command; command._fetch_spec = lambda _: None; "
    code += "command._find_people = lambda *_: 'somebody'; "
    code += f"command._run_load = lambda *_: os.kill(os.getpid(), {int(signal.SIGINT)}); command.main(['test'])"
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (process.returncode, process.stderr) == (130, "")


def test_figures_stand_in_one_column(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    async def run(driver: Driver, *_: object) -> None:
        driver.result.people = driver.result.accepted = 7

    monkeypatch.setattr(Driver, "run", run)
    as_dict = LoadResult.as_dict
    monkeypatch.setattr(LoadResult, "as_dict", lambda result: as_dict(result) | {"best_share": 1.0})
    monkeypatch.setattr(command, "_fetch_spec", lambda _: phased_spec())
    main(["test"])
    *lines, _ = capsys.readouterr().out.splitlines()
    assert "share of people with the best arm at the end  1" in lines
    assert len({len(line) - len(line.split("  ")[-1].lstrip()) for line in lines}) == 1


def test_ctrl_c_shows_what_was_counted(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    async def run(driver: Driver, *_: object) -> None:
        driver.result.people, driver.result.accepted = 7, 5
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.Event().wait()

    monkeypatch.setattr(Driver, "run", run)
    monkeypatch.setattr(command, "_fetch_spec", lambda _: phased_spec())
    with pytest.raises(SystemExit) as stop:
        main(["test", "--json"])
    out, err = capsys.readouterr()
    document = json.loads(out)
    assert (stop.value.code, document["took_part"], document["accepted"], err.count("\n")) == (130, 7, 5, 1)


@pytest.mark.parametrize(
    ("detail", "error"),
    [
        ("no such experiment", "NAME: the server has no such experiment (privateer list)"),
        ("no such page", "--url: this is not a learning server (its public port is 8000 unless you changed it)"),
    ],
)
def test_a_missing_experiment_is_named_by_its_argument(detail, error, monkeypatch, capsys):
    answer = httpx.Response(404, content=problem_body(NotFound(detail, remedy="GET /experiments lists them")))
    monkeypatch.setattr("privateer_lab.services.rest.bounded_request", lambda *_, **__: answer)
    with pytest.raises(SystemExit) as stop:
        main(["none"])
    assert (stop.value.code, capsys.readouterr().err) == (4 if "no such" in error else 2, f"privateer: {error}\n")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({}, ""),
        ({"round-closed": 1200, "wrong-key": 3}, "round-closed 1,200, wrong-key 3"),
        (False, "no"),
        (True, "yes"),
        (25086105, "25,086,105"),
        (1056.3, "1,056"),
        (0.54631, "0.5463"),
    ],
)
def test_figures_have_readable_units(value: object, text: str) -> None:
    assert format_figure(value) == text
