"""Specs, policies, results and logs made to harm whoever reads them."""

import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from privateer_client.inputs import encode_context
from privateer_core.algorithms.partition import DEPTH_MAX, PartitionPolicy
from privateer_core.answer import Answer
from privateer_core.answer.estimates import Estimate
from privateer_core.answer.facts import Table
from privateer_core.answer.parts import EffectPath, EffectsOverTime
from privateer_core.errors import InputError, Malformed, SpecError
from privateer_core.spec.context import COLUMNS_MAX, FEATURES_MAX
from privateer_core.spec.sections import TOML_BYTES_MAX, parse_toml
from privateer_core.wire.publication import digest
from privateer_core.wire.transparency_log import Entry
from privateer_lab.cli.command_line import main
from privateer_lab.render.documents import format_markdown
from privateer_lab.render.pictures import draw_answer, save_figure
from privateer_server.rounds.schedule import Schedule
from tests.support.answers import document, published
from tests.support.notary import Notary
from tests.support.specs import make_spec
from tests.unit.lab.cli.test_command_line import run

# Specs and policies with more levels, columns and halvings than anybody needs: refused, or followed at little cost.


WIDEST = {f"x{j}": {"low": 0, "high": 1, "missing": True} for j in range(FEATURES_MAX)}
"""There may be so many columns and no more."""
TOO_MUCH: dict[str, Any] = {
    "levels without end": {"x": {"levels": list(range(100_000))}},
    "levels as long as books": {"x": {"levels": ["a" * 100_000, "b"]}},
    "cut points without end": {"x": {"quantiles": list(range(100_000))}},
    "columns without end": {f"x{j}": {"levels": list(range(256))} for j in range(FEATURES_MAX)},
    "features without end": {f"x{j}": {"boolean": True} for j in range(10_000)},
    "names as long as books": {"x" * 100_000: {"boolean": True}},
    "cut points too close": {"x": {"quantiles": [0, 5e-324, 1]}},
    "cut points too far": {"x": {"quantiles": [-1.7e308, 0, 1.7e308]}},
}


@pytest.mark.parametrize("name", TOO_MUCH)
def test_a_spec_that_asks_for_too_much_is_refused_at_once(name: str) -> None:
    began = time.process_time()
    with pytest.raises(SpecError, match=r"context\.features") as refused:
        make_spec({"context.features": TOO_MUCH[name]})
    assert time.process_time() - began < 2
    assert refused.value.remedy


def widest_policy(axes: np.ndarray, depth: int) -> tuple[Any, PartitionPolicy]:
    """A policy that halves as often as it may, one half of each bin again."""
    spec = make_spec({"context.features": WIDEST})
    policy = Schedule(spec).open(0).policy
    assert isinstance(policy, PartitionPolicy)
    depths = np.append(np.arange(1, depth + 1), depth)
    paths = np.append((np.int64(1) << np.arange(1, depth + 1)) - 2, (1 << depth) - 1)
    active = np.zeros((depth + 1, 3), bool)
    active[:, 0] = True
    terms = replace(policy.terms, batch_size=0)
    return spec, replace(
        policy, axes=axes, depths=depths, paths=paths, active=active, bins=np.zeros(0, np.int64), terms=terms
    )


@pytest.mark.parametrize("column", [0, 1, COLUMNS_MAX - 1])
def test_one_column_halved_to_the_end_costs_a_device_nothing(column: int) -> None:
    """Also a flag, which has two values: the device is somewhere, and takes no time over it."""
    spec, policy = widest_policy(np.full(DEPTH_MAX, column), DEPTH_MAX)
    contexts = encode_context({name: None if int(name[1:]) % 2 else 1 for name in WIDEST}, spec.features)
    began = time.process_time()
    for _ in range(100):
        bins = policy.locate(contexts)
    assert time.process_time() - began < 2
    assert 0 <= bins[0] <= DEPTH_MAX


@given(st.integers(0, 2**32), st.integers(1, DEPTH_MAX))
def test_every_encoded_context_has_just_one_bin(seed: int, depth: int) -> None:
    rng = np.random.default_rng(seed)
    spec, policy = widest_policy(rng.integers(0, COLUMNS_MAX, DEPTH_MAX), depth)
    values = [{name: None if rng.random() < 0.3 else rng.normal() for name in WIDEST} for _ in range(5)]
    contexts = np.concatenate([encode_context(context, spec.features) for context in values])
    lower, upper = policy.edges()
    bins = policy.locate(contexts)
    inside = (contexts >= lower[bins]) & ((contexts < upper[bins]) | (upper[bins] == 1))
    assert inside.all()


@pytest.mark.parametrize("dimension", [1, COLUMNS_MAX - 1, COLUMNS_MAX + 1, FEATURES_MAX, 10**9, 0, -1])
def test_a_policy_for_other_columns_is_refused(dimension: int) -> None:
    spec, policy = widest_policy(np.zeros(DEPTH_MAX, np.int64), 3)
    with pytest.raises(Malformed):
        replace(policy, dimension=dimension).check(spec)


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=5),
    st.binary(max_size=5),
    st.lists(st.integers(), max_size=2),
    st.complex_numbers(),
)
KINDS = {
    "n": {"low": -1, "high": 1},
    "m": {"low": 0, "high": 1, "missing": True},
    "q": {"quantiles": [0, 0, 1]},
    "l": {"levels": ["a", 1, -7], "missing": True},
    "o": {"levels": [1, 2, 3], "ordered": True},
    "b": {"boolean": True},
}


@pytest.mark.filterwarnings("ignore::privateer_core.errors.InvalidValueWarning")  # which says so, on the device alone
@given(st.dictionaries(st.sampled_from([*KINDS, "other"]), VALUES))
def test_whatever_an_application_passes_is_encoded_or_refused_by_name(values: dict[str, Any]) -> None:
    features = make_spec({"context.features": KINDS}).features
    refused_fields: list[str] = []
    try:
        encoded = encode_context(values, features)
    except InputError as error:
        refused_fields.append(error.field or "")
    complete = set(values) == set(KINDS)
    assert complete is not bool(refused_fields)
    assert refused_fields[0] in (*KINDS, "other") if refused_fields else ((encoded >= 0) & (encoded <= 1)).all()


# Specs that cost a parser far more than their sender: refused before they are parsed, off the event loop.


HOSTILE = {
    "dotted key": ".".join("a" * 20_000) + " = 1",
    "dotted table": "[" + ".".join("a" * 20_000) + "]",
    "spaced and quoted": " . ".join(['"a"', "'a'"] * 5_000) + " = 1",
    "inline table": "x = {" + ".".join("a" * 20_000) + " = 1}",
    "nested arrays": "x = " + "[" * 100_000,
    "nested tables": "x = " + "{a=" * 50_000,
    "digits": "x = " + "9" * 100_000,
    "too large": "x = 1\n" * TOML_BYTES_MAX,
    "one word": "a" * (TOML_BYTES_MAX - 1),
    "quotes": '"' * (TOML_BYTES_MAX - 1),
    "spaces": "a" + " " * (TOML_BYTES_MAX - 2) + "b",
}
HARMLESS = "a.b.c.d = 1\n" + "x = [" + "0.25, " * 40_000 + "]"
_PARSE = """
import resource, sys
from privateer_core.spec.sections import parse_toml
text = sys.stdin.read()
before = resource.getrusage(resource.RUSAGE_SELF)
try:
    parse_toml(text)
except Exception as error:
    print(type(error).__name__, end=" ")
after = resource.getrusage(resource.RUSAGE_SELF)
print(after.ru_utime - before.ru_utime, after.ru_maxrss - before.ru_maxrss)
"""


@cache
def cost(text: str) -> tuple[list[str], float, float]:
    """Parse in a new process; return the exception's name, seconds of processor time, and MiB of memory."""
    process = subprocess.run([sys.executable, "-c", _PARSE], input=text, capture_output=True, text=True, timeout=60)
    assert process.returncode == 0, process.stderr
    *raised, seconds, kilobytes = process.stdout.split()
    return raised, float(seconds), float(kilobytes) / 1024


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_spec_costs_no_more_than_a_harmless_one(name: str) -> None:
    raised, seconds, memory = cost(HOSTILE[name])
    _, usual, _ = cost(HARMLESS)
    assert raised == ["SpecError"]
    assert seconds < 5 * max(usual, 0.05)
    assert memory < 64


def test_harmless_specs_are_read() -> None:
    assert parse_toml('a.b."c d" = 0.5\n[x]\ny = [1.5, 2.5]\nz = "a.b.c.d.e.f"')["x"]["y"] == [1.5, 2.5]
    assert len(parse_toml(HARMLESS)["x"]) == 40_000


def test_the_error_of_a_deep_name_states_the_limit() -> None:
    with pytest.raises(SpecError, match="a name of more than 16 parts"):
        parse_toml(".".join("a" * 18) + " = 1")


# A server chooses the names and words of a result: reports and pictures show them as text and as nothing else.


NAMES = [
    "[now](https://evil.example/a)",
    "![seen](http://evil.example/pixel.png)",
    "<https://evil.example>",
    "<script>alert(1)</script>",
    "see www.evil.example or WWW.evil.example",
    "mail me@evil.example",
    "$\\frac{1}{$ and $$x$$",
    "**bold** _it_ `code` ~~gone~~",
    "a | b || c \\| d",
    "&lt;img src=x&gt; &#60;b&#62;",
    "_hidden",
    "[red]screen[/red] [/]",
]
CLAIMS = [{"adversary": NAMES[0], "protects": NAMES[3], "epsilon": 1.0, "delta": 0.0}]


def result(names: list[str] = NAMES, *, has_parts: bool = True) -> Answer:
    paths = tuple(EffectPath(name, name, (0.1, 0.1), (0.0, 0.0), (0.2, 0.2)) for name in names)
    table = Table.of(names[1], {names[2]: "words", names[3]: "words"}, ((names[4], names[5]),))
    return Answer(
        stage="learning",
        people=None,
        rounds=None,
        confidence=0.95,
        recommended=names[0],
        estimates=tuple(Estimate(name, 0.1, 0.0, 0.2) for name in names),
        parts=(EffectsOverTime((100, 200), paths), table) if has_parts else (),
    )


def serve(monkeypatch: pytest.MonkeyPatch, answer: dict[str, Any]) -> None:
    """Have the server answer so, whatever it is asked."""
    monkeypatch.setattr("privateer_lab.services.rest.request_json", lambda *_, **__: answer)


def test_markdown_has_no_link_image_html_or_formula_of_a_servers() -> None:
    text = format_markdown(published(result(), NAMES[0]), CLAIMS)
    tokens = MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(text)
    inline = [child for token in tokens for child in token.children or []]
    kinds = {token.type for token in [*tokens, *inline]}
    blocks = {
        f"{kind}_{end}"
        for kind in (
            *("heading", "paragraph", "table", "thead", "tbody", "tr", "th", "td"),
            *("strong", "bullet_list", "list_item"),
        )
        for end in ("open", "close")
    }
    assert kinds <= blocks | {"inline", "text", "text_special"}
    visible_text = "".join(child.content for child in inline)
    assert all(name in visible_text for name in NAMES)
    assert not re.search(r"\$|://|www\.|@", text, re.IGNORECASE)


def test_pictures_draw_dollars_and_underscores_as_they_are(tmp_path: Path) -> None:
    answer = result(NAMES[6:])
    figure = draw_answer(NAMES[6], answer)[0].figure
    labels = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert {label.strip() for label in labels} == set(NAMES[6:])
    legend = figure.axes[1].get_legend()
    assert len(legend.get_texts()) == len(NAMES[6:])
    assert all(path.stat().st_size for path in save_figure(figure, tmp_path / "effects"))


def test_a_picture_of_too_many_estimates_draws_the_first(tmp_path: Path) -> None:
    answer = result([f"arm: {k}" for k in range(3_000)], has_parts=False)
    figure = draw_answer("many", answer)[0].figure
    assert "2,960 more of 3,000 are not drawn" in figure.axes[0].get_xlabel()
    assert save_figure(figure, tmp_path / "many")


@pytest.mark.parametrize(
    "change",
    [
        {"estimates": [{"name": "\x1b[2Jgone", "value": 0.1, "low": 0.0, "high": 0.2}]},
        {"estimates": [{"name": "a", "value": 1e400, "low": 0.0, "high": 0.2}]},
        {"warnings": ["a\nb"]},
        {"recommended": "a\u202eb"},
        {"confidence": "high"},
        None,
    ],
)
def test_an_invalid_result_is_refused_in_one_line(change, monkeypatch, capsys):
    answer = {} if change is None else document(result())
    conclusion = answer.get("result", {})
    conclusion |= change or {}
    serve(monkeypatch, json.loads(json.dumps(answer)))
    code, out, err = run(capsys, "answer", "trial", "--as", "details")
    assert (code, out) == (3, "")
    assert err.count("\n") == 1
    assert "not that of an experiment" in err


def test_the_screen_and_json_show_names_as_they_are(monkeypatch, capsys):
    serve(monkeypatch, document(result(has_parts=False)))
    _, screen_text, _ = run(capsys, "answer", "trial", "--as", "details")
    assert all(name in screen_text for name in NAMES)
    assert "\x1b" not in screen_text
    _, json_text, _ = run(capsys, "answer", "trial", "--as", "details", "--json")
    assert [estimate["name"] for estimate in json.loads(json_text)["estimates"]] == NAMES


# A server whose log is made to harm whoever follows it: names that steer a terminal, and answers without end.


STEERING = "\x1b]0;owned\x07\x1b[2J"
MAX_BYTES_READ = 80 << 20
"""Bytes after which nobody believes that the answer ends."""


def check_log(monkeypatch: pytest.MonkeyPatch, folder: Path, answer: Any) -> int:
    """Run ``privateer log check`` on a scripted server, and return its exit code."""
    client = httpx.Client
    monkeypatch.setattr(httpx, "Client", lambda **kwargs: client(**kwargs, transport=httpx.MockTransport(answer)))
    monkeypatch.chdir(folder)
    with pytest.raises(SystemExit) as exit_info:
        main(["log", "check", "http://server"])
    return int(exit_info.value.code or 0)


def scripted(notary: Notary) -> Any:
    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/log/key":
            return httpx.Response(200, json={"key": notary.key})
        if request.url.path == "/log/head":
            return httpx.Response(200, text=notary.head().signed)
        listed = [
            {"experiment": entry.experiment, "version": entry.version, "digest": entry.digest.hex()}
            for entry in notary.entries
        ]
        return httpx.Response(200, json={"entries": listed})

    return answer


def test_names_in_a_log_cannot_control_the_terminal(monkeypatch, tmp_path, capfd):
    notary = Notary()
    for body in (b"1", b"2"):
        notary.enter(Entry(STEERING, 1, digest(body)))
    assert check_log(monkeypatch, tmp_path, scripted(notary)) == 1
    output = "".join(capfd.readouterr())
    assert "another publication" in output
    assert "\x1b" not in output
    assert "\x07" not in output
    assert (tmp_path / "evidence.json").exists()


@pytest.mark.parametrize("page", ["/log/key", "/log/head", "/log/entries"])
def test_an_answer_without_end_is_not_read_to_its_end(monkeypatch, tmp_path, page):
    notary, n_bytes_sent = Notary(), [0]
    notary.enter(Entry("test", 1, digest(b"1")))

    def endless() -> Iterator[bytes]:
        while n_bytes_sent[0] < 2 * MAX_BYTES_READ:
            n_bytes_sent[0] += 1 << 20
            yield bytes(1 << 20)

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path == page:
            return httpx.Response(200, content=endless())
        honest: httpx.Response = scripted(notary)(request)
        return honest

    assert check_log(monkeypatch, tmp_path, answer) == 3
    assert n_bytes_sent[0] <= MAX_BYTES_READ
