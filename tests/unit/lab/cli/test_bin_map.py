"""The map shows each bin's favourite where it is."""

from privateer_core.answer.policy_view import ArmsOfBin, BinShares
from privateer_lab.render.terminal import draw_map


def shows(*bins: tuple[tuple[float, ...], tuple[float, ...], dict[str, float]]) -> BinShares:
    return BinShares(("x", "y")[: len(bins[0][0])], tuple(ArmsOfBin(low, high, (), arms) for low, high, arms in bins))


BINS = shows(
    ((0.0, 0.0), (0.5, 1.0), {"a": 1.0}),
    ((0.5, 0.0), (1.0, 0.5), {"a": 0.3, "b": 0.7}),
    ((0.5, 0.5), (1.0, 1.0), {"b": 1.0}),
)


def test_a_map_of_two_features_has_their_bins() -> None:
    lines = draw_map(BINS, ["a", "b"], width=4, height=2).plain.splitlines()
    assert lines[:2] == ["AABB", "AAbb"]
    assert lines[2].startswith("A = a, B = b")


def test_a_map_of_one_feature_has_its_bins() -> None:
    bins = shows(((0.0,), (0.5,), {"a": 1.0}), ((0.5,), (1.0,), {"b": 1.0}))
    assert draw_map(bins, ["a", "b"], width=4).plain.splitlines()[0] == "AABB"


def test_no_arm_leads_in_a_bin_without_estimates() -> None:
    bins = shows(((0.0,), (0.5,), {"a": 0.5, "b": 0.5}), ((0.5,), (1.0,), {"a": 0.0, "b": 1.0}))
    line, legend = draw_map(bins, ["a", "b"], width=4).plain.splitlines()
    assert line == "..BB"
    assert legend == "A = a, B = b; .: several have the same share, and none is ahead"
