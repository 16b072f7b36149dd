"""Snippets, answers and commands of pages run as they stand."""

import os
import re
import shlex
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import httpx
import msgspec
import numpy as np
import pytest
from openfeature import api

import privateer_client
import privateer_lab as lab
from privateer_core.algorithms import parse_spec
from privateer_core.answer.conclusion import PublishedAnswer
from privateer_lab.cli.command_line import main
from privateer_lab.cli.input_files import load_spec
from privateer_lab.render.documents import write_conclusion, write_finished
from privateer_lab.render.terminal import print_document
from privateer_lab.simulation.simulation import Simulation
from privateer_server.conclusions.conclusion import conclude
from tests.docs.test_readme import blocks, execute
from tests.documents import exports, vectors
from tests.support.devices import EVERYTHING
from tests.support.experiments import Device, Server
from tests.support.notary import notarized
from tests.support.publications import published

ROOT = Path(__file__).parents[2]
SHOWN = re.findall(r"```text\n(.*?)```", (ROOT / "docs" / "answer.md").read_text(), re.DOTALL)


GAIN = """\
what choosing by context gains, in mean reward: measured with people who got one or the other; above \
any option by chance +0.3871 (+0.2838 to +0.4904)
┏━━━━━━━━━━━━┳━━━━━━━━━━━━━━━━━━━━━━┳━━━━━━━━━┳━━━━━━━━━━┳━━━━━━━━━━━━━━━━━━━━┓
┃ by context ┃ middle for everybody ┃ gain    ┃ relative ┃ interval           ┃
┡━━━━━━━━━━━━╇━━━━━━━━━━━━━━━━━━━━━━╇━━━━━━━━━╇━━━━━━━━━━╇━━━━━━━━━━━━━━━━━━━━┩
│     0.9094 │               0.4762 │ +0.4332 │ +91.0%   │ +0.3793 to +0.4872 │
└────────────┴──────────────────────┴─────────┴──────────┴────────────────────┘
It rests on 9,425 people in 9 rounds; the experiment is finished, begun 2026-11-20. Of 9,500 people planned: \
9,425 counted in closed rounds; 75 out of reach of rounds.
Shares of people are counted.
It cost each person epsilon 1 and delta 1e-06 against the server, for all that they report: the server sees \
a permuted batch of randomized reports.
Rewards are from 0 to 1, and more counts as better; effects are differences of means.
"""
LOSSES = """\
what a person loses by following it, in mean reward; at most while intervals hold
┏━━━━━━━━━━┳━━━━━━━━━━━━━━━━━┳━━━━━━━━━┓
┃ who gets ┃ loses, expected ┃ at most ┃
┡━━━━━━━━━━╇━━━━━━━━━━━━━━━━━╇━━━━━━━━━┩
│ bundle   │               0 │       0 │
└──────────┴─────────────────┴─────────┘
It rests on 100,000 people in 7 rounds; the experiment is finished, begun 2026-11-20. Of 100,000 people planned: \
100,000 counted in closed rounds.
It cost each person epsilon 1 against readers of what is published, for all that they report: \
the server sees records, as their curator, and adds noise to what it releases.
Rewards are from 0 to 200, and more counts as better; effects are differences of means.
"""
"""What each answer says below, which the page leaves out."""


@pytest.mark.parametrize(
    ("place", "name", "settings", "below"),
    [
        (0, "peaks-shuffle", ["experiment.horizon=9500", "experiment.evaluation_fraction=0.15"], GAIN),
        (1, "revenue", [], LOSSES),
    ],
)
def test_the_page_shows_the_printed_answers(place, name, settings, below, capsys):
    run = Simulation(load_spec(ROOT / "examples" / f"{name}.toml", settings), 1)
    while run.step.batch_size:
        run.close_round()
    answer, version = run.schedule.answer(run.step), run.step.policy.version
    conclusion = conclude(run.schedule, run.step, answer)
    began, algorithm = "2026-11-20T10:00:00+00:00", run.spec.algorithm.name
    print_document(
        write_conclusion(
            PublishedAnswer(name, version, "finished", algorithm, began, run.account(), conclusion, answer)
        )
    )
    assert capsys.readouterr().out == SHOWN[place] + below


def test_the_page_shows_the_printed_answer_of_a_test_with_segments(capsys: pytest.CaptureFixture[str]) -> None:
    """Nine in ten people are where the option does harm."""
    cells = {
        ("NL", "a"): (5400, 1188),
        ("NL", "b"): (5400, 622),
        ("DE", "a"): (300, 24),
        ("DE", "b"): (300, 84),
        ("FR", "a"): (300, 36),
        ("FR", "b"): (300, 72),
    }
    rows = [
        (country, arm, float(place < yes)) for (country, arm), (people, yes) in cells.items() for place in range(people)
    ]
    country, arm, reward = zip(*rows, strict=True)
    analysis = lab.analyze({"country": country, "arm": arm, "reward": reward}, segments=["country"])
    print_document(write_finished(analysis.result.conclusion, analysis.answer, analysis.rests))
    printed = capsys.readouterr().out
    assert printed.startswith(SHOWN[2])
    assert "Shares of people are counted.\n" in printed  # nothing is said of others, who are nobody


PAGE = (ROOT / "docs" / "review.md").read_text()


def test_the_commands_work(tmp_path: Path) -> None:
    lines = [line for block in blocks("sh", PAGE) for line in block.splitlines()]
    assert lines
    for line in lines:
        assert "review.html" in execute(f".venv/bin/{line.replace('--out ', f'--out {tmp_path}/')}", dict(os.environ))
    files = set(re.findall(r"^\| `([a-z.]+)` \|", PAGE, re.MULTILINE))
    assert files >= {path.name for path in (tmp_path / "review").iterdir()} == {
        "review.html", "review.json", "record.json", "registry.yaml",
    }  # fmt: skip


def test_the_snippet_decides(tmp_path: Path) -> None:
    _, spec, body = vectors.cases()[0]
    (tmp_path / "peaks-shuffle.json").write_bytes(msgspec.json.encode(exports.build_export(spec, body)))
    (snippet,) = blocks("python", PAGE)
    process = subprocess.run(
        [sys.executable, "-c", f"{snippet}\nprint(arm, again)"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert process.returncode == 0, process.stderr
    assert set(process.stdout.split()) <= set(spec.options)


_PAGE = Path("docs/recipes.md").read_text()
_PEOPLE = 2000
_SEED = 5


def recipes_blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", _PAGE, re.DOTALL)


def test_rows_of_a_warehouse_become_effects(tmp_path, monkeypatch, capsys):
    """Buying is twice as frequent with a gift: fifteen standard errors."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(_SEED)
    offers, countries = rng.choice(["none", "gift"], _PEOPLE), rng.choice(["de", "fr"], _PEOPLE)
    bought = rng.random(_PEOPLE) < np.where(offers == "gift", 0.6, 0.3)
    visits = rng.poisson(3, _PEOPLE)
    with sqlite3.connect("shop.db") as warehouse:
        warehouse.execute("CREATE TABLE visits (person, offer, bought, country, visits_before)")
        columns = (map(str, offers), map(int, bought), map(str, countries), map(int, visits))
        warehouse.executemany("INSERT INTO visits VALUES (?, ?, ?, ?, ?)", zip(range(_PEOPLE), *columns, strict=True))
    for code in recipes_blocks("python"):
        exec(code, {})
    (command,) = "".join(recipes_blocks("sh")).splitlines()
    with pytest.raises(SystemExit) as ended:
        main(shlex.split(command)[1:])
    output = capsys.readouterr()
    assert not ended.value.code, output.err
    assert "gift" in output.out


_PEOPLE_PAGE = Path("docs/sdk/people.md").read_text()
_SPEC = {
    "experiment": {"name": "peaks-shuffle", "arms": ["left", "middle", "right"], "horizon": 1000, "round_size": 100},
    "context": {"features": {"x1": {"low": 0.0, "high": 1.0}, "x2": {"low": 0.0, "high": 1.0}}},
    "privacy": {"model": "local", "epsilon": 4.0},
    "algorithm": {"name": "partition"},
}
_ARMS = {"left", "middle", "right"}


class FakeFlask:
    """What the recipe needs of Flask, which the tests do not install."""

    def __init__(self, _: str) -> None:
        self.views: dict[str, Callable[..., Any]] = {}
        self.cli = SimpleNamespace(command=lambda name: lambda view: self.views.setdefault(name, view))

    def get(self, path: str) -> Callable[..., Any]:
        return lambda view: self.views.setdefault(path, view)

    post = get


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Server:
    monkeypatch.chdir(tmp_path)
    server = Server(published(parse_spec(_SPEC)))
    for kind in (privateer_client.Client, privateer_client.AsyncClient):

        class Here(kind):  # type: ignore[misc, valid-type]
            def __init__(self, *addresses: Any, **options: Any) -> None:
                super().__init__(*addresses, transport=notarized(server), limits=EVERYTHING, **options)

        monkeypatch.setattr(privateer_client, kind.__name__, Here)
    return server


def snippets() -> list[str]:
    """The code of the page; a machine that is busy may take longer than a page waits."""
    return [
        code.replace('default="middle"', 'default="middle", within=10.0')
        for code in re.findall(r"```python\n(.*?)```", _PEOPLE_PAGE, re.DOTALL)
    ]


def test_the_first_snippet_reports_once(server: Server) -> None:
    first, *_ = snippets()
    exec(first, space := {})
    assert space["shown"].fallback is None
    exec(first, space)
    assert len(server.posts) == 1


async def test_the_recipe_for_fastapi_serves_many(server: Server) -> None:
    _, recipe, *_ = snippets()
    exec(recipe, space := {})
    app = space["app"]
    transport = httpx.ASGITransport(app)
    async with app.router.lifespan_context(app), httpx.AsyncClient(transport=transport, base_url="http://x") as web:
        arms = [
            (await web.get(f"/offer/{user}", params={"x1": 0.3, "x2": 0.9})).json()["arm"]
            for user in range(20)
            for _ in "ab"
        ]
        assert set(arms) <= _ARMS
        assert len(set(arms)) > 1  # all alike by chance: 1e-9
        assert arms[::2] == arms[1::2]
        outcomes = Counter([(await web.post(f"/bought/{user}")).json()["outcome"] for user in range(20) for _ in "ab"])
    assert outcomes == {"accepted": 20, "already-reported": 20}
    assert len(server.posts) == 20


def test_the_recipe_for_flask_serves_many(server, monkeypatch, capsys):
    flask: Any = ModuleType("flask")
    query = {"x1": "0.3", "x2": "0.9"}
    flask.Flask = FakeFlask
    flask.request = SimpleNamespace(args=SimpleNamespace(get=lambda name, **options: options["type"](query[name])))
    monkeypatch.setitem(sys.modules, "flask", flask)
    exec(snippets()[2], space := dict[str, Any](__name__="app"))
    views = space["app"].views
    arms = [views["/offer/<user>"](f"u{user}")["arm"] for user in range(20)]
    assert set(arms) <= _ARMS
    assert len(set(arms)) > 1
    assert {views["/bought/<user>"](f"u{user}")["outcome"] for user in range(20)} == {"accepted"}
    views["flush"]()
    assert capsys.readouterr().out == "{}\n"
    assert len(server.posts) == 20


_OPENFEATURE_PAGE = Path("docs/openfeature.md").read_text()
_OPENFEATURE_SPEC = {
    "experiment": {"name": "offers", "arms": ["delivery", "discount"], "horizon": 1000, "round_size": 100},
    "context": {"features": {"visits": {"low": 0.0, "high": 20.0}, "premium": {"boolean": True}}},
    "privacy": {"model": "local", "epsilon": 4.0},
    "algorithm": {"name": "partition"},
}


def test_the_snippet_reports_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    server = Server(published(parse_spec(_OPENFEATURE_SPEC)))
    device = Device(tmp_path, server, limits=EVERYTHING)

    class Client(privateer_client.Client):
        def __init__(self, url: str, shuffler: str) -> None:
            super().__init__(url, shuffler=shuffler, **device._with({}))

    monkeypatch.setattr(privateer_client, "Client", Client)
    [snippet] = re.findall(r"```python\n(.*?)```", _OPENFEATURE_PAGE, re.DOTALL)
    namespace: dict[str, object] = {}
    try:
        # A machine that is busy may take longer than a page waits.
        exec(snippet.replace('"bought": "offers"}', '"bought": "offers"}, within=10.0'), namespace)
    finally:
        api.clear_providers()
    assert namespace["offer"] in ("delivery", "discount")
    assert len(server.posts) == 1
