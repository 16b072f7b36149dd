"""Changes from the command line, through services of their own; and kills in between."""

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from privateer_lab.cli.input_files import read_document
from privateer_lab.services.processes import Services, free_port, run_services
from tests.support.servers import SMALL
from tests.support.specs import tables
from tests.unit.lab.cli.test_command_line import call


@pytest.fixture(scope="module")
def at(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    with run_services(tmp_path_factory.mktemp("services"), free_port(), free_port()) as services:
        yield services


@pytest.fixture(autouse=True)
def addresses(at: Services, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRIVATEER_URL", at.server)
    monkeypatch.setenv("PRIVATEER_ADMIN_URL", at.admin)
    monkeypatch.setenv("PRIVATEER_ADMIN_TOKEN", at.token)


@pytest.fixture
def spec(tmp_path: Path) -> str:
    def write(name: str, **changes: Any) -> str:
        sections = tables({**SMALL, "experiment.name": name, **changes})
        path = tmp_path / f"{name}.toml"
        path.write_text("\n".join(f"{section} = {_inline(table)}" for section, table in sections.items()))
        return str(path)

    return write  # type: ignore[return-value]


def _inline(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {_inline(element)}" for key, element in value.items()) + "}"
    return json.dumps(value)


GIVEN_UP = "; the open round was given up, with what came in it"


def test_an_experiment_is_created_changed_and_deleted(spec: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(capsys, "create", spec("life"))[0] == 0
    for arguments, says in (
        (("change", "pause", "life"), "life: paused, version 1\n"),
        (("change", "pause", "life"), "life: paused, version 1; nothing changed\n"),
        (("change", "resume", "life"), "life: open, version 1\n"),
        (("change", "extend", "life", "5000"), "life: open, version 1; with the next version: extend\n"),
        (("change", "add-arm", "life", "new one", "--within", "0"), f"life: open, version 2{GIVEN_UP}\n"),
        (("change", "retire-arm", "life", "a", "--within", "0"), f"life: open, version 3{GIVEN_UP}\n"),
        (("change", "clone", "life", "life-2"), "created life-2, which knows what life has learned\n"),
        (("change", "stop", "life"), f"life: stopped, version 4{GIVEN_UP}\n"),
    ):
        assert call(capsys, *arguments) == (0, says)
    code, out = call(capsys, "change", "log", "life", "--json")
    assert code == 0
    rows = json.loads(out)["changes"]
    assert [row["action"] for row in rows] == [
        "create", "pause", "resume", "extend", "add-arm", "retire-arm", "stop",
    ]  # fmt: skip
    assert all(row["operator"].startswith("admin ") for row in rows)
    assert "retire-arm" in call(capsys, "change", "log", "life")[1]
    assert "stopped" in call(capsys, "list")[1]
    assert call(capsys, "change", "delete", "life", "--yes") == (0, "life deleted\n")
    assert call(capsys, "change", "delete", "life", "--yes") == (0, "life was deleted before\n")
    assert "life:" not in call(capsys, "list")[1]
    assert call(capsys, "answer", "life", "--as", "progress") == (
        4,
        "privateer: NAME: the experiment was deleted (privateer change log NAME says when)\n",
    )


def test_an_unconfirmed_deletion_is_refused(spec, capsys, monkeypatch):
    call(capsys, "create", spec("kept"))
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    says = "privateer: --yes: it needs a confirmation (give --yes where nobody can be asked)"
    assert call(capsys, "change", "delete", "kept") == (2, f"{says}\n")
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    assert call(capsys, "change", "delete", "kept")[0] == 130
    assert "kept" in call(capsys, "list")[1]
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    assert call(capsys, "change", "delete", "kept") == (0, "kept deleted\n")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("change", "pause", "nobody"), "NAME: the server has no such experiment (privateer list)"),
        (("change", "extend", "bad", "10"), "experiment.horizon: must be at least the 1000"),
        (("change", "retire-arm", "bad", "z"), "arm: is not an arm of the experiment"),
        (("change", "retire-arm", "bad", "b"), "arm: at least 2 arms must be left"),
        (("change", "add-arm", "bad", "a"), "arm: an arm of this name was retired"),
        (("change", "add-arm", "bad", "a/b"), "experiment.arms"),
        (("change", "pause", "bad", "--within", "-1"), "--within"),
        (("change", "clone", "bad", "Bad Name"), "experiment.name"),
        (
            ("change", "pause", "bad", "--token", "wrong-token-of-somebody"),
            "--token: this is not the server's admin token",
        ),
    ],
)
def test_an_impossible_change_is_refused_in_one_line(spec, capsys, arguments, says):
    call(capsys, "create", spec("bad"))
    call(capsys, "change", "retire-arm", "bad", "a")
    code, out = call(capsys, *arguments)
    assert (code, out.startswith("privateer: "), out.count("\n")) == (4 if "no such" in says else 2, True, 1), out
    assert says in out


def test_the_same_spec_again_says_that_it_existed(spec: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(capsys, "create", spec("twice")) == (0, "created twice\n")
    says = "twice existed already, with this very spec: nothing changed\n"
    assert call(capsys, "create", spec("twice")) == (0, says)
    code, out = call(capsys, "create", spec("twice", **{"experiment.horizon": 9000}))
    assert (code, "twice" in out or "name" in out, out.count("\n")) == (2, True, 1), out


def test_a_spec_is_checked_without_a_server(spec, capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("PRIVATEER_ADMIN_URL", "http://127.0.0.1:9")
    monkeypatch.delenv("PRIVATEER_ADMIN_TOKEN")
    code, out = call(capsys, "create", spec("only-checked"), "--check")
    assert (code, out.startswith("only-checked: a server takes this spec; its first round asks ")) == (0, True), out
    code, out = call(capsys, "create", spec("only-checked"), "--check", "--json")
    assert json.loads(out).keys() == {"format", "experiment", "first_round", "warnings"}
    window = {"experiment.conversion_window_seconds": 86_400.0}
    code, out = call(capsys, "create", spec("only-checked", **window), "--check")
    assert (code, "experiment.arrivals_per_day is not, so nobody can tell how many" in out) == (0, True), out
    window |= {"experiment.arrivals_per_day": 10.0}
    code, out = call(capsys, "create", spec("only-checked", **window), "--check")
    assert (code, "experiment.arrivals_per_day" in out) == (0, False), out
    code, out = call(capsys, "create", spec("only-checked", **{"experiment.horizon": 0}), "--check")
    assert (code, "experiment.horizon" in out, out.count("\n")) == (2, True, 1), out
    code, out = call(capsys, "create", spec("only-checked"), "--check", "--warm-start", spec("only-checked"))
    assert (code, "--warm-start: is not an export" in out) == (2, True)


def test_an_export_is_a_folder_or_a_file_and_starts_another(spec, tmp_path, capsys):
    call(capsys, "create", spec("source"))
    assert call(capsys, "export", "source", str(tmp_path / "out"))[0] == 0
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert names == ["certificate.json", "experiment.json", "policy.json", "publication.msgpack", "record.json"]
    for name in ("certificate.json", "record.json"):
        assert call(capsys, "account", "verify", str(tmp_path / "out" / name))[0] == 0
    assert call(capsys, "export", "source", str(tmp_path / "one.json"))[0] == 0
    assert read_document(tmp_path / "one.json") == read_document(tmp_path / "out" / "experiment.json")
    code, out = call(capsys, "export", "source", str(tmp_path / "one.json"))
    assert (code, "there is a one.json already" in out) == (2, True)
    started = ("--warm-start", str(tmp_path / "one.json"))
    assert call(capsys, "create", spec("begun"), *started) == (0, "created begun\n")
    for check in ((), ("--check",)):
        code, out = call(capsys, "create", spec("other", **{"experiment.arms": ["x", "y"]}), *started, *check)
        assert (code, "experiment.arms: differs from that of the experiment to begin with" in out) == (2, True)
    code, out = call(capsys, "create", spec("third"), "--warm-start", spec("third"))
    assert (code, "--warm-start: is not an export" in out) == (2, True)
    damaged = tmp_path / "damaged.json"
    for changes, says in (
        ({"version": 7}, "--warm-start: is damaged: its digest is another one (export it again, or take another copy)"),
        ({"format": "privateer/export/4"}, "--warm-start: was written by a newer Privateer"),
    ):
        damaged.write_text(json.dumps(read_document(tmp_path / "one.json") | changes))
        code, out = call(capsys, "create", spec("fourth"), "--warm-start", str(damaged))
        assert (code, out.count("\n"), says in out) == (2, 1, True), out
