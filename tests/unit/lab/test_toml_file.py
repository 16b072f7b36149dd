"""The tables of a TOML file, and the minimax rate by hand."""

from itertools import product

import numpy as np
import pytest

from privateer_core.errors import SpecError
from privateer_lab.render.minimax_rate import MinimaxRate
from privateer_lab.render.pictures import draw_plan
from privateer_lab.toml_file import apply_setting, read_tables


def test_settings_are_toml_or_bare_strings():
    data = {"a": {"b": 1, "gone": 2}}
    for setting in ("a.b=2.5", "c.d.e=word", "c.f=[1, 2]", "a.gone="):
        apply_setting(data, setting)
    assert data == {"a": {"b": 2.5}, "c": {"d": {"e": "word"}, "f": [1, 2]}}


def test_one_table_of_several_is_meant_by_its_name():
    data = {"sources": [{"name": "ward", "epsilon": 1}, {"name": "clinic", "epsilon": 1}]}
    apply_setting(data, "sources.clinic.epsilon=2")
    assert [source["epsilon"] for source in data["sources"]] == [1, 2]
    with pytest.raises(SpecError, match="'sources' is not a section"):
        apply_setting(data, "sources.epsilon=2")
    for tables in (data, {}):
        with pytest.raises(SpecError, match="sources has no table with the name 'school'"):
            apply_setting(tables, "sources.school.epsilon=2")


@pytest.mark.parametrize("setting", ["a", "a=1", "=1", "a.=1", "a.b.c=1"])
def test_malformed_settings_are_refused(setting):
    with pytest.raises(SpecError, match="--set"):
        apply_setting({"a": {"b": 1}}, setting)


def test_a_populations_files_are_beside_the_file_that_names_them(tmp_path):
    (tmp_path / "spec.toml").write_text(
        "[population]\nname = 'csv'\npath = 'one.csv, ../two.csv,/three.csv'\n"
        "[[sources]]\npopulation.path = 'four.csv'\n[[sources]]\nname = 'x'\n"
    )
    data = read_tables(tmp_path / "spec.toml", [], "SPEC")
    assert data["population"]["path"] == f"{tmp_path}/one.csv,{tmp_path}/../two.csv,/three.csv"
    assert data["sources"][0]["population"]["path"] == f"{tmp_path}/four.csv"
    changed = read_tables(tmp_path / "spec.toml", ["population.path=five.csv"], "SPEC")
    assert changed["population"]["path"] == "five.csv"


@pytest.mark.parametrize(
    "text", ["population = 3\nsources = 4", "sources = [1, {population = 2}]\npopulation.path = 7"]
)
def test_a_section_that_is_no_table_is_refused_by_the_spec(tmp_path, text):
    (tmp_path / "spec.toml").write_text(text)
    assert read_tables(tmp_path / "spec.toml", [], "SPEC")
    with pytest.raises(SpecError, match="SPEC: cannot read"):
        read_tables(tmp_path / "none.toml", [], "SPEC")


def test_the_rate_by_hand() -> None:
    """At d = 2 it is (n epsilon^2)^(-1/3), and n^(-1/2) without privacy or where epsilon is large."""
    people = np.array([1e4, 1e6])
    assert MinimaxRate(2, 0.5).mean_regret(people) == pytest.approx((people / 4) ** (-1 / 3))
    assert MinimaxRate(2, None).mean_regret(people) == pytest.approx(people**-0.5)
    assert MinimaxRate(2, 100.0).mean_regret(people) == pytest.approx(people**-0.5)


@pytest.mark.parametrize(("dimension", "epsilon"), [*product((1, 2, 4), (0.5, 4.0, None))])
def test_people_counted_have_the_regret(dimension: int, epsilon: float | None) -> None:
    rate = MinimaxRate(dimension, epsilon)
    people = rate.count_people(0.03)
    assert rate.mean_regret(np.array([people])) == pytest.approx(0.03)
    assert MinimaxRate(dimension + 1, epsilon).count_people(0.03) > people


def test_half_of_epsilon_costs_four_times_the_people() -> None:
    assert MinimaxRate(2, 0.5).count_people(0.03) == pytest.approx(4 * MinimaxRate(2, 1.0).count_people(0.03))


def test_the_constant_is_that_of_the_later_half() -> None:
    """Planted: the first half is far from the rate."""
    rate, people = MinimaxRate(1, 1.0), np.geomspace(1e3, 1e6, 8)
    regrets = 7.0 * rate.mean_regret(people)
    regrets[:4] = 1.0
    assert rate.fit_constant(people, regrets) == pytest.approx(7.0)


def test_the_picture_of_a_plan_has_the_rate_where_it_is_known() -> None:
    people = (1000, 2000, 5000, 10_000, 20_000)
    path = [{"people": n, "regret_mean": 0.3 * (1000 / n) ** 0.3, "regret_worst": 0.4} for n in people]
    fixed = {"path": path, "best_constant_regret": 300.0, "people": 20_000}
    rows = [{"model": model, "epsilon": epsilon, **fixed} for model, epsilon in (("local", 1.0), ("central", 1.0))]
    figure = draw_plan("test", "people", [*rows, {"model": "none", "epsilon": None, **fixed}], 2).figure
    labels = [[line.get_label() for line in axis.get_lines() if "rate" in line.get_label()] for axis in figure.axes]
    assert [len(names) for names in labels] == [1, 0, 1]
    assert "half of epsilon" in labels[0][0]
    assert "half of epsilon" not in labels[2][0]
    bare = draw_plan("test", "people", rows).figure
    assert not any("rate" in line.get_label() for axis in bare.axes for line in axis.get_lines())
