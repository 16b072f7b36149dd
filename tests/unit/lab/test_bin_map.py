"""The map shows each bin's favourite where it is."""

from privateer_lab.bin_map import draw

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
