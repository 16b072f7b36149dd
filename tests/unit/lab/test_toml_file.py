"""The tables of a TOML file and settings from the command line."""

import pytest

from privateer_core.errors import SpecError
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
