"""Paper 1's Table 2 as printed: reward relative to ABSE's, of six methods on three data sets under four promises."""

from typing import Final

METHODS: Final = ("LDPMAB, with", "LDPMAB", "Linear, with", "Linear", "NN, with", "NN")
"""The columns: each with auxiliary data and without."""
PROMISES: Final = ((1.0, 1.0), (1.0, 4.0), (2.0, 1.0), (2.0, 4.0))
"""Epsilons of the people and of the sources."""
PARTS: Final = {"n/4": 4, "n": 1}
"""When rewards are read, and the share of people that this is one of."""
_ROWS: Final = """
Adult 1.459 0.987 0.954 0.950 0.906 0.935 1.101 0.795 0.724 0.715 0.750 0.784
Jobs 0.801 0.797 0.786 0.794 0.800 0.795 0.694 0.693 0.684 0.690 0.700 0.695
Taxi 0.989 0.976 0.987 0.984 0.998 0.989 0.994 0.992 0.996 0.993 0.998 0.995
Adult 1.602 0.987 0.988 0.986 1.110 0.992 1.210 0.795 0.782 0.771 0.871 0.816
Jobs 0.846 0.797 0.795 0.804 0.800 0.798 0.742 0.693 0.688 0.704 0.698 0.695
Taxi 0.997 0.985 0.976 0.969 0.990 0.989 0.996 0.992 0.992 0.991 0.996 0.995
Adult 1.459 0.986 0.964 0.986 0.895 0.930 1.102 0.919 0.762 0.772 0.745 0.808
Jobs 0.819 0.808 0.788 0.791 0.800 0.797 0.719 0.720 0.683 0.683 0.705 0.688
Taxi 0.992 0.974 0.989 0.989 1.000 0.996 0.996 0.992 0.997 0.997 1.000 0.999
Adult 1.602 0.986 0.964 0.968 0.895 0.929 1.210 0.919 0.762 0.762 0.745 0.791
Jobs 0.857 0.808 0.788 0.785 0.800 0.792 0.754 0.720 0.683 0.674 0.705 0.696
Taxi 1.001 0.974 0.989 0.989 1.000 1.000 1.002 0.992 0.997 0.997 1.000 1.000
"""
"""Four blocks, one a promise, of a line for each data set: six ratios after a quarter of the people, six after all."""
PRINTED_RANK_SUMS: Final = {"n/4": (15, 45, 55, 52, 37, 43), "n": (22, 44, 54, 56, 33, 36)}
DATASETS: Final = ("Adult", "Jobs", "Taxi")


def _table() -> dict[tuple[str, tuple[float, float], str], tuple[float, ...]]:
    found = {}
    for place, line in enumerate(_ROWS.split("\n")[1:-1]):
        name, *figures = line.split()
        ratios = [float(figure) for figure in figures]
        for part, own in zip(PARTS, (ratios[:6], ratios[6:]), strict=True):
            found[name, PROMISES[place // len(DATASETS)], part] = tuple(own)
    return found


PRINTED: Final = _table()
"""Ratios in the order of `METHODS`, by data set, promise and part."""
