"""Paper 1, Figures 4 and 5: the reward functions of Section 4.1, and the densities of shifted sources."""

from collections.abc import Iterator
from itertools import product
from typing import Final

import numpy as np
from matplotlib.figure import Figure

from privateer_core.arrays import Array
from privateer_lab.environments.functions import PeaksSection
from privateer_lab.render.pictures import COLOURS, create_panels
from privateer_papers.reproduction import Effort, Reproduction, Row, Rows, TableLine

_N_ARMS: Final = 3
_N_POINTS: Final = 401
_GRID_SIDE: Final = 20
_GAMMAS: Final = (0.2, 1.0, 2.0)
CODE_CENTRES: Final = "k / (K + 1), the code"
TEXT_CENTRES: Final = "k / K, the text"


def compute_mean_rewards(centres: str, x1: Array) -> Array:
    """Return the mean rewards of all arms, shape (n, K), with centres as in the authors' code or in their text."""
    if centres == CODE_CENTRES:
        return PeaksSection().means(np.column_stack([x1, x1]), _N_ARMS)
    bump = np.exp(-2.0 * _N_ARMS**2 * (x1[:, None] - np.arange(1, _N_ARMS + 1) / _N_ARMS) ** 2)
    return np.asarray(2 * bump / (1 + bump))


def _rows_of_figure_4(_effort: Effort) -> Iterator[Row]:
    """Yield mean rewards along x1; they do not depend on x2."""
    positions = np.linspace(0.0, 1.0, _N_POINTS)
    for centres in (CODE_CENTRES, TEXT_CENTRES):
        for x1, rewards in zip(positions.tolist(), compute_mean_rewards(centres, positions).tolist(), strict=True):
            yield {"centres": centres, "x1": x1, **{f"arm_{arm + 1}": reward for arm, reward in enumerate(rewards)}}


def _reward_table(rows: Rows, centres: str) -> Array:
    return np.array([[row[f"arm_{arm + 1}"] for arm in range(_N_ARMS)] for row in rows.where(centres=centres)])


def summarize_rewards(rows: Rows, centres: str) -> tuple[Array, float, float]:
    """Return each arm's share of participants for whom it is best, and the regret at random and of the best arm."""
    rewards = _reward_table(rows, centres)
    best = rewards.max(axis=1)
    shares = np.bincount(rewards.argmax(axis=1), minlength=_N_ARMS) / len(rewards)
    return shares, float((best - rewards.mean(axis=1)).mean()), float(best.mean() - rewards.mean(axis=0).max())


def _draw_figure_4(title: str, rows: Rows) -> Figure:
    """Draw the arms' mean rewards along x1, for the centres of the code and of the text."""
    figure, axes = create_panels(2, title)
    for axis, centres in zip(axes, (CODE_CENTRES, TEXT_CENTRES), strict=True):
        positions, table = [row["x1"] for row in rows.where(centres=centres)], _reward_table(rows, centres)
        for arm, colour in zip(range(_N_ARMS), COLOURS, strict=False):
            axis.plot(positions, table[:, arm], color=colour, label=f"arm {arm + 1}")
        axis.set_title(f"centres {centres}", fontsize=9)
        axis.set_xlabel("x1")
    axes[0].set_ylabel("mean reward")
    axes[0].legend(fontsize=7)
    return figure


def _sentence_of_figure_4(rows: Rows) -> str:
    """Say what arms at random lose with the centres of the code and of the text."""
    code, text = (summarize_rewards(rows, centres) for centres in (CODE_CENTRES, TEXT_CENTRES))
    return (
        f"Arms at random lose {code[1]:.3f} a person with the centres of the authors' code, which made the published "
        f"figures, and {text[1]:.3f} with those of the text."
    )


def _compare_figure_4(rows: Rows) -> list[TableLine]:
    """List the losses of random arms and of the best single arm, and shares of best arms, by text and by code."""
    lines = []
    for label, index in (("arms at random lose a person", 1), ("the best single arm loses a person", 2)):
        code, text = (summarize_rewards(rows, centres)[index] for centres in (CODE_CENTRES, TEXT_CENTRES))
        lines.append(TableLine(label, f"{text:.3f} by its text", f"{code:.3f} by its code", f"{code:.3f}"))
    code_shares, text_shares = (
        ", ".join(f"{share:.0%}" for share in summarize_rewards(rows, centres)[0])
        for centres in (CODE_CENTRES, TEXT_CENTRES)
    )
    label, figures = "each arm is best for", (f"{text_shares} by its text", f"{code_shares} by its code", code_shares)
    return [*lines, TableLine(label, *figures)]


FIGURE_4: Final = Reproduction(
    "paper-1-figure-4",
    "Paper 1, Figure 4: reward functions",
    *(_rows_of_figure_4, _draw_figure_4, _sentence_of_figure_4, _compare_figure_4),
    minutes=1,
)


def _rows_of_figure_5(_effort: Effort) -> Iterator[Row]:
    """Yield the density of every cell of a grid: its probability mass over its area."""
    edges = np.arange(_GRID_SIDE + 1) / _GRID_SIDE
    for gamma in _GAMMAS:
        corner_masses = np.array([[_rectangle_mass(x1, x2, gamma) for x2 in edges - 0.5] for x1 in edges - 0.5])
        masses = np.diff(np.diff(corner_masses, axis=0), axis=1)
        for (x1, x2), mass in zip(product(edges[:-1].tolist(), repeat=2), masses.ravel().tolist(), strict=True):
            yield {"gamma": gamma, "x1": x1, "x2": x2, "density": mass * _GRID_SIDE**2}


def _rectangle_mass(u: float, v: float, gamma: float) -> float:
    """Return the probability mass of the rectangle between the middle and a point; with the sign of ``u v``.

    It is the integral of the density c max(|s|, |t|)^gamma, with c = 2^gamma (2 + gamma) / 2, over the rectangle.
    """
    near, far = sorted((abs(u), abs(v)))
    square_mass, power_gap = 2 * near ** (gamma + 2) / (gamma + 2), far ** (gamma + 1) - near ** (gamma + 1)
    integral = square_mass + near * power_gap / (gamma + 1)
    return float(np.sign(u * v) * 2**gamma * (2 + gamma) / 2 * integral)


def _density_grid(rows: Rows, gamma: float) -> Array:
    return np.array([row["density"] for row in rows.where(gamma=gamma)]).reshape(_GRID_SIDE, _GRID_SIDE)


def _draw_figure_5(title: str, rows: Rows) -> Figure:
    """Draw the density of contexts for each gamma."""
    figure, axes = create_panels(len(_GAMMAS), title)
    largest = max(row["density"] for row in rows)
    for axis, gamma in zip(axes, _GAMMAS, strict=True):
        extent = (0, 1, 0, 1)
        image = axis.imshow(
            _density_grid(rows, gamma).T, origin="lower", extent=extent, vmin=0, vmax=largest, cmap="viridis"
        )
        axis.set_title(f"gamma {gamma:g}", fontsize=9)
        axis.set_xlabel("x1")
        axis.grid(visible=False)
    axes[0].set_ylabel("x2")
    figure.colorbar(image, ax=axes[-1], label="density")
    return figure


def _middle_share(rows: Rows, gamma: float) -> float:
    """Return the share of participants within 1/4 of the middle; by the paper's density (1/2)^(2 + gamma)."""
    quarter = _GRID_SIDE // 4
    return float(_density_grid(rows, gamma)[quarter : 3 * quarter, quarter : 3 * quarter].sum() / _GRID_SIDE**2)


def _sentence_of_figure_5(rows: Rows) -> str:
    """Say how far our density is from the printed one, and how the authors' sampler differs."""
    gap = max(abs(_middle_share(rows, gamma) - 0.5 ** (2 + gamma)) for gamma in rows.values("gamma"))
    return (
        f"Our density is the printed one to {max(gap, 1e-12):.0e}; the authors' sampler has that of twice the gamma, "
        "where there are two features."
    )


def _compare_figure_5(rows: Rows) -> list[TableLine]:
    """List the share of people near the middle for each gamma: as printed, by the code, and ours."""
    return [
        TableLine(
            f"share of people within 1/4 of the middle, gamma {gamma:g}",
            f"{0.5 ** (2 + gamma):.4f}",
            f"{0.5 ** (2 + 2 * gamma):.4f} by its code",
            f"{_middle_share(rows, gamma):.4f}",
        )
        for gamma in rows.values("gamma")
    ]


FIGURE_5: Final = Reproduction(
    "paper-1-figure-5",
    "Paper 1, Figure 5: where people of sources are",
    *(_rows_of_figure_5, _draw_figure_5, _sentence_of_figure_5, _compare_figure_5),
    minutes=1,
)
