"""The surface of ``privateer_lab``: names, tables, pictures, examples of docstrings, and errors."""

import doctest
import struct
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from pyarrow import parquet

import privateer_lab as lab
from privateer_core.accounting.accountant import account
from privateer_core.errors import InputError, PrivateerError, SpecError
from privateer_core.privacy.certificate import certify
from privateer_core.privacy.risk import assess_risks
from privateer_lab.notebook import tabular
from privateer_lab.notebook.plot import max_true_positive_rates
from privateer_lab.render.pictures import COLOURS

PACKAGE = Path(tabular.__file__).parent
FUNCTIONS = [name for name in lab.__all__ if name[0].islower() and name != "plot"]
MODULES = {f"privateer_lab.notebook.{path.stem}" for path in PACKAGE.glob("*.py") if path.stem != "__init__"}
MODULES |= {getattr(lab, name).__module__ for name in FUNCTIONS}
FRAME: dict[str, Any] = {"x": [0.1, 0.9, 0.4, 0.6], "arm": ["a", "b", "a", "b"], "p": [0.5] * 4, "reward": [0, 1, 1, 1]}


def test_every_name_is_there_and_documented() -> None:
    assert set(lab.__all__) <= set(dir(lab))
    assert all(getattr(lab, name).__doc__ for name in lab.__all__)
    with pytest.raises(AttributeError, match="no attribute 'unheard'"):
        lab.unheard  # noqa: B018


def test_data_frames_are_imported_when_they_are_asked_for() -> None:
    code = "import sys, privateer_lab as lab; lab.evaluate; lab.simulate; lab.plan; print({'pandas', 'polars'} & "
    code += "set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "set()"


@pytest.mark.parametrize("name", sorted(MODULES))
def test_the_examples_of_the_docstrings_work(name: str) -> None:
    module = import_module(name)
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    results = doctest.testmod(module, optionflags=flags)
    assert results.failed == 0
    functions = [getattr(lab, function) for function in FUNCTIONS if function not in ("result", "history", "policy")]
    assert all(">>>" in function.__doc__ for function in functions if function.__module__ == name)


def table() -> lab.ResultTable:
    return lab.ResultTable("a table", {"arm": ["a", "b"], "n": [1, 2], "share": [0.5, None], "cell": ["few", 3.0]})


def test_tables_become_frames(tmp_path: Path) -> None:
    small_table = table()
    rows = [{"arm": "a", "n": 1, "share": 0.5, "cell": "few"}, {"arm": "b", "n": 2, "share": None, "cell": "3.0"}]
    assert small_table.to_arrow().to_pylist() == rows
    assert isinstance(small_table.to_pandas(), pd.DataFrame)
    assert small_table.to_pandas()["n"].tolist() == [1, 2]
    assert isinstance(small_table.to_polars(), pl.DataFrame)
    assert small_table.to_polars().rows(named=True) == rows
    small_table.to_parquet(tmp_path / "table.parquet")
    assert parquet.read_table(tmp_path / "table.parquet").to_pylist() == rows
    assert len(small_table) == 2


@pytest.mark.parametrize("name", ["pandas", "polars", "pyarrow"])
def test_a_missing_library_is_named_with_the_line_that_installs_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(SpecError, match=rf"{name}: {name} is not installed \(pip install {name}\)"):
        getattr(table(), f"to_{name.removeprefix('py')}")()


FRAMES = {"dict": lambda data: data, "pandas": pd.DataFrame, "polars": pl.DataFrame, "arrow": pa.table}


@pytest.mark.parametrize("kind", FRAMES)
def test_all_frames_are_alike(kind: str, tmp_path: Path) -> None:
    plain = lab.evaluate(FRAME, "b", context=["x"])
    frame = FRAMES[kind](FRAME)
    assert lab.evaluate(frame, "b", context=["x"]).values == plain.values
    assert lab.spec_from(frame, reward="reward", arm="arm", ignore=["p"]).spec.options == ("a", "b")
    for path in (tmp_path / "log.csv", tmp_path / "log.parquet"):
        pd.DataFrame(FRAME).to_csv(path, index=False) if path.suffix == ".csv" else pd.DataFrame(FRAME).to_parquet(path)
        assert lab.evaluate(path, "b", context=["x"]).values == plain.values


BAD: list[tuple[Any, dict[str, Any], str]] = [
    ({}, {}, r"table: no columns \(give a data frame"),
    ({"arm": [], "p": [], "reward": []}, {}, "table: has no rows"),
    (FRAME, {"reward": "won"}, r"won: no column has this name \(choose from x, arm, p, reward\)"),
    (FRAME, {"context": ["y"]}, "y: no column has this name"),
    (FRAME, {"context": "x"}, r"context: must be a list .* \(write context=\['x'\]\)"),
    (FRAME | {"reward": ["ill"] * 4}, {}, "reward: must be numbers, or yes and no, and has other values"),
    (FRAME | {"reward": ["yes", 5, 0, 1]}, {}, "reward: must be numbers, or yes and no, and has other values"),
    (FRAME | {"reward": [None] * 4}, {}, "arm and reward and p: has no row with a value"),
    (FRAME | {"p": [0.5, 0.0, 0.5, 0.5]}, {}, "p: must be above 0 and at most 1: row 1"),
    (FRAME | {"p": [0.5, 1.5, 0.5, 0.5]}, {}, "p: must be above 0 and at most 1: row 1"),
    (FRAME | {"p": [0.5, "half", 0.5, 0.5]}, {}, "p: must be above 0 and at most 1: row 1"),
    (FRAME, {"propensity": 2.0}, "propensity: must be above 0"),
    (FRAME, {"arms": ["a", "c"], "policy": "a"}, "arm: row 1, .* not one of a, c"),
    (FRAME, {"policy": "c"}, "policy: there is no arm of this name among a, b"),
    (FRAME, {"policy": 3}, "policy: a number is the arm of that name, and there is none among a, b"),
    (FRAME, {"policy": object()}, "policy: is no policy"),
    (FRAME, {"policy": lambda c: ["a"]}, "policy: must answer for each of the 4 rows"),
    (FRAME, {"policy": lambda c: ["z"] * 4}, r"policy: row 0, .* not one of a, b \(return names of the log's"),
    (FRAME, {"policy": lambda c: c["x"], "context": []}, r"context: has no column 'x', .* context=\['x'\]\)"),
    (FRAME, {"policy": lambda c: c["y"], "context": ["x"]}, r"context: has no column 'y', .*; it has x\)"),
    (FRAME, {"policy": lambda c: "a" if c["x"] < 2 else "b", "context": ["x"]}, "policy: treats a column as if"),
    (FRAME, {"policy": lambda c: {"a": 0.5}}, "policy: gives probabilities that are negative or do not sum to 1"),
    (FRAME, {"policy": lambda c: {"z": 1.0}}, "policy: gives arms that the log does not have: z"),
    (FRAME, {"level": 1.0}, "level: must be a number above 0 and below 1"),
    (FRAME, {"folds": 1}, "folds: must be a whole number from 2"),
    (FRAME | {"x": [1.0]}, {}, "table: its columns must have one length"),
    ("nowhere.parquet", {}, "table: cannot read nowhere.parquet: there is no file of this name"),
    (FRAME | {"arm": range(4), "x": [1, 2, 3, 4]}, {"policy": "7"}, "no arm of this name"),
]


@pytest.mark.parametrize(("frame", "arguments", "error"), BAD)
def test_a_frame_that_cannot_be_used_is_refused_in_one_sentence(frame, arguments, error):
    with pytest.raises(PrivateerError, match=error) as caught:
        lab.evaluate(frame, **{"policy": "b", **arguments})
    assert isinstance(caught.value, InputError | SpecError)
    assert caught.value.remedy
    assert "\n" not in str(caught.value)


def test_a_policys_features_must_be_columns() -> None:
    policy = lab.simulate("examples/peaks-local.toml", users=1000, seeds=1).policy
    log = {"x1": [0.5] * 4, "arm": ["left"] * 4, "p": [0.5] * 4, "reward": [1] * 4}
    with pytest.raises(SpecError, match=r"context\.features\.x2: no column of the table has this name"):
        lab.evaluate(log, policy)
    with pytest.raises(SpecError, match="arms: lacks arms of the policy: middle, right"):
        lab.evaluate(log | {"x2": [0.5] * 4}, policy, arms=["left"])


def test_contexts_are_read_as_devices_read_them() -> None:
    simulated = lab.simulate("examples/garden-shuffle.toml", users=2000, seeds=1)
    garden = {"sun": [3.0], "rain": [47], "acidity": [6.2], "soil": ["sand"]}
    flagged = {key: value for key, value in garden.items() if key != "soil"} | {"soil=sand": [1]}
    assert (simulated.policy.shares(garden) == simulated.policy.shares(flagged)).all()
    with pytest.raises(SpecError, match="row 1, column 'sun' of the frame has no value"):
        simulated.policy.shares(garden | {"sun": [np.nan]})
    levels = lab.simulate("examples/levels-shuffle.toml", users=2000, seeds=1).policy
    assert np.allclose(levels.shares_at(np.zeros((3, levels.spec.dimension))).sum(axis=1), 1)


def test_specs_are_built_from_files_texts_and_tables() -> None:
    text = Path("examples/peaks-local.toml").read_text()
    parsed = lab.spec(text)
    assert lab.spec(parsed) == lab.spec(parsed.model_dump(exclude_none=True)) == parsed
    data = parsed.model_dump(exclude_none=True)
    assert lab.spec(data, {"context.features.x2": None}, users=900).experiment.horizon == 900
    assert "x2" in data["context"]["features"]
    for wrong, error in (
        (3, "spec: is no spec"),
        ({"privacy": 2}, "algorithm.name: missing"),
        ("nowhere.toml", "cannot read"),
    ):
        with pytest.raises(SpecError, match=error):
            lab.spec(wrong)  # type: ignore[arg-type]
    with pytest.raises(SpecError, match=r"changes\.privacy: is not a key"):
        lab.spec(parsed, {"privacy": {}})
    with pytest.raises(SpecError, match="seeds: must be a whole number"):
        lab.simulate(parsed, seeds=0)


def test_a_log_becomes_a_spec_draft() -> None:
    log = {"age": [20, 30, 40, 55], "spent": [0.0, 12.0, 30.0, 99.0], "arm": ["new", "old", "new", "old"]}
    spec_draft = lab.spec_from(log, reward="spent", arm="arm", bounds={"age": (18, 98)})
    assert (spec_draft.spec.reward.low, spec_draft.spec.reward.high) == (0.0, 100.0)
    assert spec_draft.spec.options == ("new", "old")
    assert any("options are from the data" in message for message in spec_draft.confirm)
    assert "<pre>" in spec_draft._repr_html_()
    assert (
        lab.spec_from(log, reward="spent", bounds={"spent": (0, 50), "age": (0, 99)}, ignore=["arm"]).spec.reward.high
        == 50
    )
    with pytest.raises(SpecError, match="won: no column has this name"):
        lab.spec_from(log, reward="won")
    with pytest.raises(SpecError, match="arm: must be numbers"):
        lab.spec_from(log, reward="arm")


FALSE = np.linspace(0, 1, 501)


@pytest.fixture(scope="module")
def peaks() -> lab.Simulated:
    return lab.simulate("examples/peaks-shuffle.toml", users=6000, seeds=2)


@pytest.fixture(scope="module")
def effects() -> lab.Simulated:
    return lab.simulate("examples/trial.toml", users=20_000, seeds=1)


def size_of(png: bytes) -> tuple[int, int]:
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    return struct.unpack(">II", png[16:24])


def check(picture: Any) -> None:
    """A picture has a title, labelled axes, and fits a column."""
    assert picture.title
    assert picture.figure._suptitle.get_text() == picture.title
    assert all(axis.get_xlabel() for axis in picture.figure.axes)
    width, height = size_of(picture._repr_png_())
    assert 400 <= width <= 800
    assert 150 <= height <= 1200


def test_the_map_has_the_policys_arms(peaks: lab.Simulated) -> None:
    """The colour of a place is that of the arm that people there get most."""
    axis = lab.plot.policy(peaks).figure.axes[0]
    pixels = axis.collections[0].get_array().reshape(160, 160, 3)
    middles = (np.arange(160) + 0.5) / 160
    shares = peaks.policy.shares({"x1": middles, "x2": np.full(160, middles[30])})
    for index in np.flatnonzero(shares.max(axis=1) > 0.999):
        colour = COLOURS[int(shares[index].argmax())]
        assert tuple(round(255 * float(part)) for part in pixels[30, index]) == tuple(
            int(colour[k : k + 2], 16) for k in (1, 3, 5)
        )


@pytest.mark.parametrize("name", ["bandit", "linear", "levels-shuffle", "miss-shuffle", "num10-shuffle"])
def test_policies_of_every_kind_have_a_map(name: str) -> None:
    simulated = lab.simulate(f"examples/{name}.toml", users=3000, seeds=1)
    check(lab.plot.policy(simulated))
    assert len(simulated.policy) > 0


def claims(spec: str, changes: dict[str, Any] | None = None) -> Any:
    parsed = lab.spec(spec, changes)
    terms = parsed.first_terms("")
    assert terms is not None
    return certify(parsed.name, parsed.privacy, [terms], planned=True)


@pytest.mark.parametrize("name", ["local", "shuffle", "central"])
def test_an_attack_achieves_the_rates_of_the_curve(name: str) -> None:
    """Its best advantage is the published risk, and at any false-positive rate it satisfies (epsilon, delta)."""
    certificate = claims(f"examples/peaks-{name}.toml")
    for claim, risk in zip(certificate.claims, assess_risks(certificate).risks, strict=True):
        rates = max_true_positive_rates(claim, FALSE)
        assert (np.diff(rates) >= -1e-12).all()
        assert (rates >= FALSE).all()
        if claim.epsilon is None:
            assert (rates == 1).all()
            continue
        assert (rates <= np.exp(claim.epsilon) * FALSE + claim.delta + 1e-12).all()
        assert (rates - FALSE).max() == pytest.approx(risk.advantage, rel=0.02, abs=1e-6)
        delta = account(claim.event).delta(0.0) + claim.sampling
        assert (rates <= FALSE + delta + 1e-12).all()


def test_randomized_response_has_the_curve_of_two_answers() -> None:
    claim = claims("examples/peaks-local.toml", {"privacy.epsilon": 2.0}).claims[0]
    e = np.exp(2.0)
    exact = np.minimum(e * FALSE, 1 - (1 - FALSE) / e)
    assert max_true_positive_rates(claim, FALSE) == pytest.approx(exact, abs=1e-9)


def test_a_plot_that_is_not_possible_is_refused(peaks: lab.Simulated) -> None:
    with pytest.raises(SpecError, match=r"age: no feature has this name \(choose from x1, x2\)"):
        lab.plot.policy(peaks, "age")
    with pytest.raises(SpecError, match=r"policy: is no policy \(give the name of an experiment"):
        lab.plot.policy(3)  # type: ignore[arg-type]
    with pytest.raises(SpecError, match="estimates no effects"):
        lab.plot.effects(peaks)
    with pytest.raises(SpecError, match="has no regret"):
        lab.plot.regret(peaks.policy)  # type: ignore[arg-type]
    for name in ("convex-one-point", "stations"):
        simulated = lab.simulate(f"examples/{name}.toml", seeds=1)
        with pytest.raises(SpecError, match="chooses something else than an arm for each person"):
            lab.plot.policy(simulated)
    with pytest.raises(SpecError, match="promises nothing"):
        lab.plot.privacy(lab.spec("examples/peaks-local.toml", {"privacy.model": "none", "privacy.epsilon": None}))
