"""What pages on algorithms have readers type works, and their figures are computed again."""

import json
import math
import os
import re
import shlex
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import httpx
import numpy as np
import pytest

from privateer_core.algorithms import parse_spec
from privateer_core.algorithms.phased import PhasedSpec
from privateer_core.errors import SpecError
from privateer_core.mechanisms import NamedSymbol
from privateer_core.primitives.questions import KeyedHits
from privateer_core.spec.privacy import Privacy
from privateer_lab.audit.suite import target_names
from privateer_lab.cli.input_files import load_spec
from privateer_lab.planning.plans import EPSILONS, make_variants
from privateer_lab.services.processes import free_port, run_services
from privateer_papers.catalogue import all_reproductions
from privateer_papers.paper_4.frontier import trial_setting
from privateer_server.algorithms.trial.evidence.epochs import PlannedEpoch, TrialDesign
from privateer_server.algorithms.trial.group_sequential import decision_time, find_drift
from privateer_server.algorithms.trial.power.power_analysis import analyze_power, build_designs, required_people
from privateer_server.rounds.schedule import Schedule
from tests.docs.test_readme import blocks, execute, run_snippet

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "linear.md").read_text()


def test_the_pages_commands() -> None:
    """The simulations themselves are in tests/simulation, shorter."""
    lines = [shlex.split(line) for block in blocks("sh", PAGE) for line in block.splitlines()]
    assert len(lines) == 2
    for program, command, path, *options in lines:
        assert (program, command) == ("privateer", "simulate")
        pairs = dict(zip(options[::2], options[1::2], strict=True))
        assert set(pairs) <= {"--users", "--seeds", "--set"}
        spec = load_spec(ROOT / path, [pairs["--set"]] if "--set" in pairs else [], int(pairs["--users"]))
        assert (spec.algorithm.name, spec.experiment.horizon) == ("linear", 100_000)


SPARSE_PAGE = (ROOT / "docs" / "sparse.md").read_text()


def test_the_sparse_pages_commands() -> None:
    """Simulations themselves are in tests/simulation, shorter."""
    lines = [shlex.split(line) for block in blocks("sh", SPARSE_PAGE) for line in block.splitlines()]
    names = ("simulate", "plan", "audit", "reproduce", "audit")
    assert [line[:2] for line in lines] == [["privateer", name] for name in names]
    for _, name, path, *options in lines[:2]:
        pairs = dict(zip(options[::2], options[1::2], strict=True))
        settings = [pairs["--set"]] if "--set" in pairs else []
        spec = load_spec(ROOT / path, settings, int(pairs["--users"]))
        assert spec.algorithm.name == "sparse"
        models = pairs.get("--models", "central").split(",")
        for variant in make_variants(spec, models, EPSILONS[:: len(EPSILONS) - 1] if name == "plan" else (1.0,)):
            Schedule(variant.spec).open(0)
    assert lines[2][3] in target_names()
    assert lines[3][2] in all_reproductions()
    assert lines[4][3] in target_names()


CONVEX_PAGE = (ROOT / "docs" / "convex.md").read_text()


def test_the_page_names_the_experiment_of_its_commands_and_rewards_that_it_takes() -> None:
    create, load = (line for block in blocks("sh", CONVEX_PAGE) for line in block.splitlines())
    path = create.split()[-1]
    spec: Any = load_spec(ROOT / path, [])
    assert spec.name in load.split()
    assert path in load.split()
    (snippet,) = blocks("python", CONVEX_PAGE)
    calls: list[str] = []

    class Session:
        """What the snippet asks of a session, with points of the spec's dimension."""

        def choose(self) -> dict[str, list[float]]:
            return {name: [1.0] + [0.0] * (spec.domain.dimension - 1) for name in ("first", "second")}

        def report(self, rewards: dict[str, float]) -> None:
            assert rewards.keys() == self.choose().keys()
            assert all(spec.reward.low <= reward <= spec.reward.high for reward in rewards.values())
            calls.append("report")

    class Client:
        def __init__(self, *_: str, **__: str) -> None: ...

        def join(self, name: str) -> Session:
            assert name == spec.name
            return Session()

    exec(snippet.replace("from privateer_client import Client", ""), {"Client": Client})
    assert calls == ["report"]


@pytest.mark.nightly
def test_the_pages_commands_and_device(tmp_path: Path) -> None:
    create, load = (line for block in blocks("sh", CONVEX_PAGE) for line in block.splitlines())
    with run_services(tmp_path, free_port(), free_port(), token="change-me-to-something-random") as at:
        environment = os.environ | {
            "PRIVATEER_URL": at.server,
            "PRIVATEER_ADMIN_URL": at.admin,
            "PRIVATEER_SHUFFLER_URL": at.shuffler,
            "PRIVATEER_SENDER_KEY": str(at.sender_key),
            "PRIVATEER_LEDGER": str(tmp_path / "ledger.db"),
        }
        execute(create, environment)
        (snippet,) = blocks("python", CONVEX_PAGE)
        run_snippet(snippet, at, environment)
        assert httpx.get(f"{at.server}/experiments/convex-two-point").json()["received"] == 1
        document = json.loads(execute(f"{load.replace('2000', '300')} --json", environment))
        assert (document["accepted"], document["took_part"]) == (299, 300)
        assert document["regret"] < document["uniform_regret"]
        state = httpx.get(f"{at.server}/experiments/convex-two-point/state").json()["answer"]
        assert state["people"] == 300


PHASED_PAGE = (ROOT / "docs" / "phased-run.md").read_text()


@pytest.mark.nightly
def test_the_phased_pages_commands_and_device(tmp_path: Path) -> None:
    """The load is the nightly tests' to run in full: here those few of the people are that a short wait takes."""
    create, load = (line for block in blocks("sh", PHASED_PAGE) for line in block.splitlines())
    with run_services(tmp_path, free_port(), free_port(), token="change-me-to-something-random") as at:
        environment = os.environ | {
            "PRIVATEER_URL": at.server,
            "PRIVATEER_ADMIN_URL": at.admin,
            "PRIVATEER_SHUFFLER_URL": at.shuffler,
            "PRIVATEER_SENDER_KEY": str(at.sender_key),
            "PRIVATEER_LEDGER": str(tmp_path / "ledger.db"),
        }
        execute(create, environment)
        document = json.loads(execute(f"{load} --users 200 --json", environment))
        assert (document["over"], document["accepted"] + document["people"]["held"]["needed"]) == (False, 101)
        (snippet,) = blocks("python", PHASED_PAGE)
        run_snippet(snippet, at, environment)
        facts = httpx.get(f"{at.server}/experiments/stations").json()
        assert (facts["algorithm"], facts["version"]) == ("phased", 1)


def test_the_figures_of_the_page_are_those_of_the_example() -> None:
    spec = load_spec(ROOT / "examples" / "stations.toml", [])
    assert isinstance(spec, PhasedSpec)
    n_participants = sum(spec.phase_size(phase) for phase in range(1, spec.phases + 1))
    assert f"{n_participants:,} people in {spec.phases} phases" in PHASED_PAGE


EFFECTS_PAGE = (ROOT / "docs" / "trial" / "planning.md").read_text()
FIGURES = (ROOT / "docs" / "trial" / "figures.md").read_text()
ROWS = re.findall(r"^\| (\.\d+), (\.\d+), (\d) \| (.*) \|$", EFFECTS_PAGE, re.MULTILINE)
TIMES = tuple((1.5 ** np.arange(-7.0, 1.0)).tolist())
PROMISES = [
    {"model": "none"},
    {"model": "central", "epsilon": 1.0},
    None,  # shuffled batches take seconds to calibrate
    {"model": "local", "epsilon": 2.0},
    {"model": "local", "epsilon": 1.0},
]


def participants_needed(promise: dict[str, object], base: float, effect: float, segments: int) -> float:
    setting = trial_setting(Privacy.model_validate(promise), segments, 1_000)
    design = TrialDesign(0.05, 1e5, np.array([0.5, 0.5]), np.array([1 / segments]), setting.counted)
    epochs = [PlannedEpoch(1e5 * size, setting.keep, setting.other, setting.noise) for size in np.diff((0.0, *TIMES))]
    return float(required_people(design, epochs, base + effect / 2, effect)[0, 0])


@pytest.mark.parametrize("row", ROWS)
def test_people_needed(row: tuple[str, str, str, str]) -> None:
    base, effect, segments = float(row[0]), float(row[1]), int(row[2])
    figures = [float(figure.replace(",", "")) for figure in row[3].split(" | ")]
    for figure, promise in zip(figures, PROMISES, strict=True):
        if promise is not None:
            assert participants_needed(promise, base, effect, segments) == pytest.approx(figure, rel=0.02)


def test_all_rows_are_found_and_decision_times_are_right() -> None:
    assert len(ROWS) == 6
    drift = find_drift(TIMES, 0.05)
    assert f"{decision_time(TIMES, 0.05, drift):.0%}".replace("%", " %") in EFFECTS_PAGE
    assert f"{decision_time(TIMES, 0.05, 2 * drift):.0%}".replace("%", " %") in EFFECTS_PAGE


def test_commands_of_the_page_name_existing_specs_and_options() -> None:
    (planned,), (measured,) = blocks("sh", EFFECTS_PAGE), blocks("sh", FIGURES)
    commands = planned + measured
    reproduced = re.findall(r"reproduce (\S+)", commands)
    assert reproduced
    for name in reproduced:
        assert name in all_reproductions()
    for path in re.findall(r"(?:tests|examples)/\S+", commands):
        assert (ROOT / path).is_file()


def test_the_published_calibration_is_refused() -> None:
    promise = ["privacy.model=central", "privacy.epsilon=1", "privacy.calibration=published"]
    with pytest.raises(SpecError, match="unknown key"):
        load_spec(ROOT / "examples" / "trial.toml", promise)


DOCS: Final = Path(__file__).parents[2] / "docs"
REWARDS_PAGE: Final = (DOCS / "rewards.md").read_text()
MEASURED: Final = (DOCS / "rewards-measured.md").read_text()
MODELS: Final = (
    {"model": "none"},
    {"model": "central", "epsilon": 1.0},
    {"model": "central", "epsilon": 0.3},
    {"model": "shuffle", "epsilon": 1.0, "delta": 1e-6},
    {"model": "local", "epsilon": 4.0},
    {"model": "local", "epsilon": 1.0},
)
"""The columns of the table."""
SCORE: Final = {"base_rate": 0.5}
REVENUE: Final = {"low": 0.0, "high": 200.0, "base_rate": 2.3}
OUTCOMES: Final = (
    ({"base_rate": 0.3}, 0.02),
    (SCORE, 0.01),
    (SCORE | {"kind": "numeric", "standard_deviation": 0.1}, 0.01),
    (REVENUE, 0.23),
    (REVENUE | {"kind": "numeric", "standard_deviation": 14.0}, 0.23),
)
"""Rewards and effects, the rows of the table."""


def find_sample_size(privacy: dict[str, Any], reward: dict[str, Any], effect: float, guess: float = 2e4) -> float:
    """People with whom a trial of two arms finds an effect, in rounds calibrated for as many people."""
    n_needed = guess
    for _ in range(10):
        previous, spec = n_needed, trial_of(privacy, reward, int(n_needed))
        n_needed = float(analyze_power(spec, build_designs(spec)).people_for(effect / spec.reward.span)[-1].min())
        if abs(n_needed / previous - 1) < 0.003:
            break
    return n_needed


def trial_of(privacy: dict[str, Any], reward: dict[str, Any], people: int) -> Any:
    """A trial of two arms in fixed shares."""
    return parse_spec(
        {
            "experiment": {"name": "trial", "arms": ["a", "b"], "horizon": people, "round_size": 1000},
            "context": {"features": {"x": {"low": 0.0, "high": 1.0}}},
            "reward": reward,
            "privacy": privacy,
            "algorithm": {"name": "trial", "allocation": "fixed"},
        }
    )


def in_digits(people: float) -> str:
    """People as the page has them, in two digits."""
    rounded = round(people, 1 - math.floor(math.log10(people)))
    if rounded < 1e6:
        return f"{rounded:,.0f}"
    return f"{rounded / 1e6:,.{1 if rounded < 1e7 else 0}f}M"


def read(cell: str) -> float:
    """The people of a cell."""
    return float(cell.strip("M").replace(",", "")) * (1e6 if cell.endswith("M") else 1)


def table_after(words: str, first: int, page: str = REWARDS_PAGE) -> list[list[str]]:
    """The cells of the table that follows these words, without heads and the ``first`` columns."""
    lines = page[page.index(words) :].split("\n\n|", 1)[1].split("\n\n", 1)[0].splitlines()[2:]
    return [[cell.strip(" *") for cell in line.strip("|").split("|")][first:] for line in lines]


def computed(rows: list[list[str]], outcomes: Sequence[tuple[dict[str, Any], float]]) -> list[list[str]]:
    """The cells of a table, from a plan for as many people as it tells."""
    return [
        [in_digits(find_sample_size(model, *outcome, read(cell))) for model, cell in zip(MODELS, cells, strict=True)]
        for outcome, cells in zip(outcomes, rows, strict=True)
    ]


def test_the_people_that_outcomes_take() -> None:
    """Planted: a score of .7 of the deviation takes half of the people, where there is no noise."""
    rows = table_after("People in all", first=2)
    assert rows == computed(rows, OUTCOMES)
    noiseless = (SCORE | {"kind": "numeric", "standard_deviation": 0.07}, 0.01)
    assert rows[2][0] != in_digits(find_sample_size(MODELS[0], *noiseless))


@pytest.mark.parametrize("model", [1, 3])
def test_the_people_that_wide_bounds_take(model: int) -> None:
    """Ten times too wide, and as they are, which is a row of the table."""
    name = "`{model}` {epsilon:g}".format(**MODELS[model])
    match = re.search(rf"(\S+) (?:people )?instead of (\S+) under {re.escape(name)}", REWARDS_PAGE)
    assert match
    wide = SCORE | {"kind": "numeric", "high": 10.0, "standard_deviation": 0.1}
    assert match[1] == in_digits(find_sample_size(MODELS[model], wide, 0.01, read(match[1])))
    assert match[2] == table_after("People in all", first=2)[2][model]


def test_the_levels_that_reports_have() -> None:
    """One key, a mean in the middle: at each local epsilon of the table, and just below it, as many as it says."""
    heads = re.search(r"\| local epsilon - .*\n", MEASURED)
    assert heads
    steps = [float(cell.split()[0]) for cell in heads.group().strip("|\n ").split("|")[2:]]
    (levels,) = table_after("so L depends on", 1, MEASURED)
    question = KeyedHits.from_keys(1, expected=0.5)
    for below, step, count in zip(levels, steps, levels[1:], strict=False):
        assert NamedSymbol.calibrated(question, step - 0.01).levels == int(below)
        assert NamedSymbol.calibrated(question, step + 0.01).levels == int(count)


@pytest.mark.parametrize("snippet", re.findall(r"```toml\n(.*?)```", REWARDS_PAGE, re.S))
def test_recommended_reward_sections_have_no_warnings(snippet: str) -> None:
    spec = trial_of(MODELS[1], tomllib.loads(snippet)["reward"], 20_000)
    assert spec.concerns() == [], "what the page recommends has nothing to warn of"
