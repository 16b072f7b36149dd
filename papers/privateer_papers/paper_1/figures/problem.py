"""Paper 1, Figures 4 and 5: the reward functions of Section 4.1, and where people of shifted sources are."""

from collections.abc import Iterator
from itertools import product
from typing import Final

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from privateer_lab.environments.density import ShiftedDensity
from privateer_lab.environments.functions import PeaksSection
from privateer_lab.pages.plots import COLOURS, panels
from privateer_papers.reproduction import Compared, Effort, Reproduction, Row, Rows

_ARMS: Final = 3
_POINTS: Final = 401
_SIDE: Final = 20
_GAMMAS: Final = (0.2, 1.0, 2.0)
CODE: Final = "k / (K + 1), the code"
TEXT: Final = "k / K, the text"
Array = NDArray[np.float64]


def means(centres: str, x1: Array) -> Array:
    """Return the mean rewards of all arms, shape (n, K): of the product's environment, or as the text has them."""
    if centres == CODE:
        return PeaksSection().means(np.column_stack([x1, x1]), _ARMS)
    bump = np.exp(-2.0 * _ARMS**2 * (x1[:, None] - np.arange(1, _ARMS + 1) / _ARMS) ** 2)
    return np.asarray(2 * bump / (1 + bump))


def _rows_of_figure_4(_effort: Effort) -> Iterator[Row]:
    """Give mean rewards along x1; nothing depends on x2."""
    at = np.linspace(0.0, 1.0, _POINTS)
    for centres in (CODE, TEXT):
        for x1, rewards in zip(at.tolist(), means(centres, at).tolist(), strict=True):
            yield {"centres": centres, "x1": x1, **{f"arm_{place + 1}": one for place, one in enumerate(rewards)}}


def _table(rows: Rows, centres: str) -> Array:
    return np.array([[row[f"arm_{place + 1}"] for place in range(_ARMS)] for row in rows.where(centres=centres)])


def figures(rows: Rows, centres: str) -> tuple[Array, float, float]:
    """Return the share of people for whom each arm is best, and what a person loses at random, and by the best arm."""
    table = _table(rows, centres)
    best = table.max(axis=1)
    shares = np.bincount(table.argmax(axis=1), minlength=_ARMS) / len(table)
    return shares, float((best - table.mean(axis=1)).mean()), float(best.mean() - table.mean(axis=0).max())


def _draw_figure_4(title: str, rows: Rows) -> Figure:
    figure, axes = panels(2, title)
    for axis, centres in zip(axes, (CODE, TEXT), strict=True):
        at, table = [row["x1"] for row in rows.where(centres=centres)], _table(rows, centres)
        for place, colour in zip(range(_ARMS), COLOURS, strict=False):
            axis.plot(at, table[:, place], color=colour, label=f"arm {place + 1}")
        axis.set_title(f"centres {centres}", fontsize=9)
        axis.set_xlabel("x1")
    axes[0].set_ylabel("mean reward")
    axes[0].legend(fontsize=7)
    return figure


def _sentence_of_figure_4(rows: Rows) -> str:
    code, text = (figures(rows, centres) for centres in (CODE, TEXT))
    return (
        f"Arms at random lose {code[1]:.3f} a person with the centres of the authors' code, which made the published "
        f"figures, and {text[1]:.3f} with those of the text."
    )


def _verdict_of_figure_4(rows: Rows) -> str:
    said = []
    for centres in (CODE, TEXT):
        shares, random, constant = figures(rows, centres)
        best = ", ".join(f"{share:.0%}" for share in shares)
        said.append(
            f"Centres {centres}: arms are best for {best} of people; at random they lose {random:.3f} a person, the "
            f"best single arm {constant:.3f}."
        )
    return "\n".join(said)


def _compared_of_figure_4(rows: Rows) -> list[Compared]:
    lines = []
    for words, place in (("arms at random lose a person", 1), ("the best single arm loses a person", 2)):
        code, text = (figures(rows, centres)[place] for centres in (CODE, TEXT))
        lines.append(Compared(words, f"{text:.3f} by its text", f"{code:.3f} by its code", f"{code:.3f}"))
    return lines


FIGURE_4: Final = Reproduction(
    "paper-1-figure-4",
    "Paper 1, Figure 4: reward functions",
    _rows_of_figure_4,
    _draw_figure_4,
    _verdict_of_figure_4,
    _sentence_of_figure_4,
    _compared_of_figure_4,
    minutes=1,
)


def _rows_of_figure_5(_effort: Effort) -> Iterator[Row]:
    """Give the density of every cell of a grid: its share of the people over its area."""
    edges = np.arange(_SIDE) / _SIDE
    corners = np.array(list(product(edges.tolist(), edges.tolist())))
    for gamma in _GAMMAS:
        masses = ShiftedDensity(name="shifted", gamma=gamma).masses(corners, corners + 1 / _SIDE)
        for (x1, x2), mass in zip(corners.tolist(), masses.tolist(), strict=True):
            yield {"gamma": gamma, "x1": x1, "x2": x2, "density": mass * _SIDE**2}


def _grid(rows: Rows, gamma: float) -> Array:
    return np.array([row["density"] for row in rows.where(gamma=gamma)]).reshape(_SIDE, _SIDE)


def _draw_figure_5(title: str, rows: Rows) -> Figure:
    figure, axes = panels(len(_GAMMAS), title)
    most = max(row["density"] for row in rows)
    for axis, gamma in zip(axes, _GAMMAS, strict=True):
        extent = (0, 1, 0, 1)
        image = axis.imshow(_grid(rows, gamma).T, origin="lower", extent=extent, vmin=0, vmax=most, cmap="viridis")
        axis.set_title(f"gamma {gamma:g}", fontsize=9)
        axis.set_xlabel("x1")
        axis.grid(visible=False)
    axes[0].set_ylabel("x2")
    figure.colorbar(image, ax=axes[-1], label="density")
    return figure


def _middle(rows: Rows, gamma: float) -> float:
    """Return the share of people within 1/4 of the middle, which is (1/2)^(2 + gamma) by the paper's density."""
    quarter = _SIDE // 4
    return float(_grid(rows, gamma)[quarter : 3 * quarter, quarter : 3 * quarter].sum() / _SIDE**2)


def _verdict_of_figure_5(rows: Rows) -> str:
    shares = ", ".join(f"{_middle(rows, gamma):.1%} at gamma {gamma:g}" for gamma in rows.values("gamma"))
    return f"Within a quarter of the middle are 25.0% of uniform people, and {shares}. {_sentence_of_figure_5(rows)}"


def _sentence_of_figure_5(rows: Rows) -> str:
    gap = max(abs(_middle(rows, gamma) - 0.5 ** (2 + gamma)) for gamma in rows.values("gamma"))
    return (
        f"Our density is the printed one to {max(gap, 1e-12):.0e}; the authors' sampler has that of twice the gamma, "
        "where there are two features."
    )


def _compared_of_figure_5(rows: Rows) -> list[Compared]:
    return [
        Compared(
            f"share of people within 1/4 of the middle, gamma {gamma:g}",
            f"{0.5 ** (2 + gamma):.4f}",
            f"{0.5 ** (2 + 2 * gamma):.4f} by its code",
            f"{_middle(rows, gamma):.4f}",
        )
        for gamma in rows.values("gamma")
    ]


FIGURE_5: Final = Reproduction(
    "paper-1-figure-5",
    "Paper 1, Figure 5: where people of sources are",
    _rows_of_figure_5,
    _draw_figure_5,
    _verdict_of_figure_5,
    _sentence_of_figure_5,
    _compared_of_figure_5,
    minutes=1,
)
