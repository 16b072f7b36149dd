"""The map shows each bin's favourite where it is."""

from privateer_lab.bin_map import coloured, draw

BINS = [
    {"lower": [0.0, 0.0], "upper": [0.5, 1.0], "arms": {"a": 1.0}},
    {"lower": [0.5, 0.0], "upper": [1.0, 0.5], "arms": {"a": 0.3, "b": 0.7}},
    {"lower": [0.5, 0.5], "upper": [1.0, 1.0], "arms": {"b": 1.0}},
]


def test_two_features() -> None:
    lines = draw(BINS, ["a", "b"], width=4, height=2).splitlines()
    assert lines[:2] == ["AABB", "AAbb"]
    assert lines[2].startswith("A = a, B = b")


def test_one_feature() -> None:
    bins = [{"lower": [0.0], "upper": [0.5], "arms": {"a": 1.0}}, {"lower": [0.5], "upper": [1.0], "arms": {"b": 1.0}}]
    assert draw(bins, ["a", "b"], width=4).splitlines()[0] == "AABB"


def test_no_arm_is_ahead_where_nothing_is_known() -> None:
    bins = [
        {"lower": [0.0], "upper": [0.5], "arms": {"a": 0.5, "b": 0.5}},
        {"lower": [0.5], "upper": [1.0], "arms": {"a": 0.0, "b": 1.0}},
    ]
    line, legend = draw(bins, ["a", "b"], width=4).splitlines()
    assert line == "..BB"
    assert legend == "A = a, B = b; .: several have the same share, and none is ahead"
    assert coloured(draw(bins, ["a", "b"], width=4)).plain == f"{line}\n{legend}"
