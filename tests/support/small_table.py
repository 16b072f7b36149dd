"""A small table with a class, which a level decides for a part of the rows, and a number for the rest."""

from pathlib import Path

import numpy as np

_SPEC = """[experiment]
name = "small"
arms = ["a", "b", "c"]
horizon = {people}
round_size = 100
min_round_fraction = 0.3

[context.features]
number = {{ low = 0.0, high = 1.0, missing = true }}
level = {{ levels = ["red", "green", "blue"] }}

[privacy]
model = "none"

[algorithm]
name = "additive"

[population]
name = "csv"
path = "small.csv"
label = "class"
"""


def small_table(folder: Path, people: int) -> Path:
    """Write ``small.csv`` and a spec of its rows, once each; return the spec's path.

    Of every 20 people nine have class b, six a and five c: 18 have that of their features. Red ones have class a, of
    the others those with a number up to .6 have b, and the rest, or who has none, c; two in 20 have another class.
    """
    rng = np.random.default_rng(5)
    rows = []
    for place in range(people):
        group = place % 20
        right = "a" if group < 6 else "b" if group < 15 else "c"
        level = "red" if right == "a" else ("green", "blue")[place % 2]
        number = rng.uniform(0, 0.6) if right == "b" else rng.uniform(0.6, 1.0)
        if group in (4, 5):  # the level and the number of others
            level, number = "green", rng.uniform(0, 0.6)
        has_number = right == "b" or group in (4, 5) or rng.random() < 0.7
        rows.append(f"{f'{number:.4f}' if has_number else ''},{level},{right}")
    (folder / "small.csv").write_text("\n".join(["number,level,class", *rows, ""]), encoding="utf-8")
    path = folder / "small.toml"
    path.write_text(_SPEC.format(people=people), encoding="utf-8")
    return path
