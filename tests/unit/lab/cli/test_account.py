"""The calculators print the figures of the notes, and a single line for each error."""

import json
import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import msgspec
import pytest

from privateer_core.primitives.public_coins import Layout
from privateer_core.primitives.questions import KeyedMeans
from privateer_core.privacy.certificate import certify
from privateer_core.privacy.terms import calibrate
from privateer_core.spec.privacy import Privacy
from privateer_lab.cli.ask import claim_rows
from tests.support.records import record_of
from tests.unit.lab.cli.test_command_line import run


def figures(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    code, out, _ = run(capsys, "account", *arguments, "--json")
    assert code == 0
    return dict(json.loads(out))


def test_the_gaussian_has_its_exact_deviation(capsys: pytest.CaptureFixture[str]) -> None:
    output = figures(capsys, "gaussian", "--epsilon", "1", "--delta", "1e-5", "--sensitivity", "2")
    assert output["standard_deviation"] == pytest.approx(2 * 3.731, abs=0.002)
    assert output["exact"]


@pytest.mark.parametrize(
    ("batch", "bound", "expected"),
    [(10_000, "clones", 4.80), (10_000, "binary", 5.47), (10**6, "clones", 9.37), (10**6, "binary", 10.06)],
)
def test_amplification(capsys: pytest.CaptureFixture[str], batch: int, bound: str, expected: float) -> None:
    options = ["--epsilon", "1", "--delta", "1e-6", "--batch", str(batch), "--bound", bound]
    output = figures(capsys, "amplification", *options)
    assert output["local_epsilon"] == pytest.approx(expected, abs=0.02)
    assert output["delta_reached"] <= 1e-6


def test_amplification_of_subset_selection(capsys: pytest.CaptureFixture[str]) -> None:
    """It lies between those of two symbols and of a single own symbol; more than half of the symbols are refused."""
    options = ["--epsilon", "1", "--delta", "1e-6", "--batch", "900", "--symbols", "128"]
    subset, whole = (
        figures(capsys, "amplification", *options, "--bound", *bound)["local_epsilon"]
        for bound in (["subset", "--own-symbols", "26"], ["k-ary"])
    )
    assert 3.18 < subset < whole
    assert figures(capsys, "amplification", *options, "--bound", "subset")["local_epsilon"] == whole
    code, _, err = run(capsys, "account", "amplification", *options, "--bound", "subset", "--own-symbols", "65")
    assert (code, "own" in err, "half of the symbols" in err) == (2, True, True)


def test_shuffled_bits_are_close_to_the_analytic_gaussian(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--epsilon", "1", "--delta", "1e-6", "--coordinates", "20", "--levels", "10", "--batch", "1024"]
    output = figures(capsys, "shuffled-bits", *options)
    assert output["noise_bits_total"] == pytest.approx(143_198, rel=0.01)
    assert output["against_analytic_gaussian"] < 1.02


def test_shuffled_bits_of_a_large_batch_are_unfair(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--epsilon", "1", "--delta", "1e-6", "--coordinates", "20", "--batch", "1000000"]
    output = figures(capsys, "shuffled-bits", *options, "--honest-fraction", "0.9")
    assert output["bits_per_person"] == 1
    assert output["probability"] < 0.1
    assert output["against_analytic_gaussian"] < 1.03


def test_compositions_of_json_and_toml_agree(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    as_json, as_toml = tmp_path / "events.json", tmp_path / "events.toml"
    as_json.write_text(
        '[{"event": "gaussian", "standard_deviation": 3}, {"event": "gaussian", "standard_deviation": 4}]'
    )
    as_toml.write_text('[[events]]\nevent = "gaussian"\nstandard_deviation = 2.4\n')
    left = figures(capsys, "compose", str(as_json), "--delta", "1e-6", "--delta", "1e-9")
    right = figures(capsys, "compose", str(as_toml), "--delta", "1e-6", "--delta", "1e-9")
    assert left["exact"]
    for point, other in zip(left["curve"], right["curve"], strict=True):
        assert point["epsilon"] == pytest.approx(other["epsilon"], rel=1e-6)


@pytest.mark.parametrize("paper", ["1", "2", "3", "4", "5"])
def test_published_figures_are_printed(capsys: pytest.CaptureFixture[str], paper: str) -> None:
    claims = figures(capsys, "published", paper)["claims"]
    assert all(claim["why"] and claim["source"] for claim in claims)
    assert any(claim.get("true_epsilon", 0) != claim["claimed_epsilon"] for claim in claims)
    code, out, _ = run(capsys, "account", "published", paper)
    assert code == 0
    assert claims[0]["claim"].split()[0] in out
    assert "](" not in out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["gaussian", "--epsilon", "1", "--delta", "0"], "delta: "),
        (["gaussian", "--epsilon", "nan", "--delta", "1e-6"], "epsilon: "),
        (["gaussian", "--epsilon", "1", "--delta", "1e-6", "--sensitivity", "0"], "sensitivity: "),
        (["amplification", "--epsilon", "1", "--delta", "1e-6", "--batch", "0"], "batch: "),
        (["amplification", "--epsilon", "1", "--delta", "0", "--batch", "9", "--bound", "binary"], "--delta: "),
        (["amplification", "--epsilon", "20", "--delta", "1e-6", "--batch", "9"], "--epsilon: "),
        (["shuffled-bits", "--epsilon", "1", "--delta", "0", "--coordinates", "2", "--batch", "9"], "delta: "),
        (["shuffled-bits", "--epsilon", "1", "--delta", "1e-6", "--coordinates", "2", "--batch", "0"], "--batch: "),
        (["compose", "none.json"], "FILE: cannot read"),
        (["compose", "pyproject.toml"], "event: this is not an event"),
        (["published", "6"], "PAPER"),
        (["amplification", "--epsilon", "1", "--delta", "1e-6", "--batch", "99999999999999999999999"], "batch: "),
        (["ledger", "--delta", "nan"], "--delta: "),
        (["ledger", "--delta", "1"], "--delta: "),
    ],
)
def test_an_error_is_a_single_line(capsys: pytest.CaptureFixture[str], arguments: list[str], says: str) -> None:
    code, out, err = run(capsys, "account", *arguments)
    assert (code, out) == (2, "")
    assert says in err
    assert len(err.strip().splitlines()) == 1


def certificate(tmp_path: Path, epsilon: float) -> Path:
    """A certificate that claims this epsilon for reports of epsilon 1."""
    terms = calibrate(Privacy(model="local", epsilon=1.0), 100, KeyedMeans(Layout.example()))
    path = tmp_path / "certificate.json"
    path.write_bytes(msgspec.json.encode(certify("spring", Privacy(model="local", epsilon=epsilon), [terms])))
    return path


def test_verify_recomputes_what_sources_are_promised(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path, text = tmp_path / "record.json", json.dumps(record_of("sources"))
    path.write_text(text)
    sources = figures(capsys, "verify", str(path))["sources"]
    assert [source["name"] for source in sources] == ["clinic", "abroad"]
    assert all(claim["holds"] for source in sources for claim in source["claims"])
    # Rounds and certificates agree on so few honest people that the promise is not kept.
    path.write_text(
        text.replace('"honest_fraction": 0.9', '"honest_fraction": 0.1').replace('"honest": 900', '"honest": 100')
    )
    code, out, _ = run(capsys, "account", "verify", str(path))
    assert code == 1
    assert "clinic" in out
    for bad in (3, [3], [{}], [{"name": "clinic"}], [{"name": "clinic", "certificate": {}}]):
        path.write_text(json.dumps(json.loads(text) | {"sources": bad}))
        code, _, err = run(capsys, "account", "verify", str(path))
        assert code == 2
        assert len(err.splitlines()) == 1


def test_verify_recomputes_a_certificate(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    output = figures(capsys, "verify", str(certificate(tmp_path, 1.0)))
    assert [claim["holds"] for claim in output["claims"]] == [True, True]
    assert output["claims"][0]["protects"] == "the whole record"
    code, out, _ = run(capsys, "account", "verify", str(certificate(tmp_path, 0.5)))
    assert code == 1
    assert "NO" in out
    code, out, err = run(capsys, "account", "verify", "pyproject.toml")
    assert (code, out) == (2, "")
    assert "certificate: not a certificate" in err


@pytest.mark.parametrize(
    "text",
    [
        '[{"event": "pure", "epsilon": 1, "epsilon": 9}]',
        '[{"event": "pure", "epsilon": NaN}]',
        '[{"event": "pure", "epsilon": 1' + "0" * 400 + "}]",
        '{"event": "repeated", "of": ' * 40 + '{"event": "pure", "epsilon": 1}' + ', "count": 1}' * 40,
        "[" * 150 + "]" * 150,
        '[{"event": "repeated", "of": {"event": "pure", "epsilon": 1}, "count": 1' + "0" * 300 + "}]",
        '{"events": []}',
        "null",
    ],
)
def test_hostile_events_are_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path, text: str) -> None:
    path = tmp_path / "events.json"
    path.write_text(text)
    code, out, err = run(capsys, "account", "compose", str(path))
    assert (code, out) == (2, "")
    assert len(err.splitlines()) == 1


@contextmanager
def answering(status: int, body: bytes) -> Iterator[str]:
    """A server that is none of ours."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize("status", [200, 404])
@pytest.mark.parametrize("body", [b"<html>", b"[]", b"{}", b"[" * 100_000, b"\xff"])
@pytest.mark.battery
def test_answers_of_other_servers_are_refused(capsys: pytest.CaptureFixture[str], status: int, body: bytes) -> None:
    with answering(status, body) as url:
        code, out, err = run(capsys, "account", "experiment", "offers", "--url", url)
    # An object might be a certificate, and is refused as one; nothing else is an answer of a Privateer service.
    assert (code, out) == (2 if (status, body) == (200, b"{}") else 3, "")
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize(
    ("epsilon", "says"), [(None, ("epsilon, delta", "nothing is claimed")), (1.0, ("epsilon", 1.0))]
)
def test_a_claim_without_a_promise_is_shown_as_such(epsilon: float | None, says: tuple[str, object]) -> None:
    assert claim_rows(epsilon, 1.0)[0] == says


def test_a_report_of_several_messages_costs_all_of_them(capsys: pytest.CaptureFixture[str]) -> None:
    record = record_of("messages")
    mechanism = record["rounds"][0]["mechanism"]
    assert mechanism["repeats"] == 3
    with answering(200, json.dumps(record).encode()) as url:
        code, out, _ = run(capsys, "account", "experiment", "test", "--url", url)
    assert code == 0
    assert "epsilon of one report" not in out  # who sends three messages still reports once
    assert re.search(rf"│ +{3 * mechanism['epsilon']:.4g} │ +{mechanism['directions']} │", out)


def test_a_record_that_does_not_add_up_is_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    record = record_of("shuffle")
    record["rounds"][0]["mechanism"]["epsilon"] = 3.9
    with answering(200, json.dumps(record).encode()) as url:
        code, out, err = run(capsys, "account", "experiment", "test", "--url", url)
    assert (code, out) == (2, "")
    assert " rounds.1.mechanism: " in err


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("a.json", "{nothing", "is neither JSON nor TOML"),
        ("a.toml", "[[[", "is neither JSON nor TOML"),
        ("a.json", "[" * 100_000 + "]" * 100_000, "is neither JSON nor TOML"),
        ("a.json", " " * 2000 + "{}", "has more than 1000 bytes"),
    ],
)
def test_a_malformed_document_is_refused_in_one_line(name, text, says, capsys, tmp_path, monkeypatch):
    if "bytes" in says:
        monkeypatch.setattr("privateer_lab.cli.input_files._MAX_FILE_BYTES", 1000)
    (tmp_path / name).write_text(text)
    code, out, err = run(capsys, "account", "verify", str(tmp_path / name))
    assert (code, out, err.count("\n"), "FILE: " in err, says in err) == (2, "", 1, True, True)


def test_tightness_reads_an_earlier_run(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    options = ["tightness", "--batch", "1000", "--symbols", "2", "--reports", "1"]
    earlier = figures(capsys, *options)
    assert earlier["format"] == "privateer/output/1"
    joint = next(row for row in earlier["distances"] if row["name"] == "row-sums, joint")
    assert (joint["claimed"], joint["saved"]) == (
        pytest.approx(math.sqrt(8 / 3), rel=1e-4),
        pytest.approx(1.5, rel=1e-4),
    )
    (tmp_path / "earlier.json").write_text(json.dumps(earlier))
    (row,) = figures(capsys, *options, "--before", str(tmp_path / "earlier.json"))["rows"]
    assert row["before"] == row["allowed"]
    (tmp_path / "earlier.json").write_text(json.dumps(earlier["rows"]))
    code, _, err = run(capsys, "account", *options, "--before", str(tmp_path / "earlier.json"))
    assert (code, "--before: has no rows of an earlier run" in err) == (2, True), err
