"""Pictures of pages and notebooks: how they look, how they are drawn without a display, shown and saved."""

import base64
import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike
from typing import TYPE_CHECKING, Any, Final

from privateer_core.errors import printable
from privateer_lab.notebook.tabular import library

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS: Final = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#6b6b6b")
"""Colours of arms, which people with any colour vision tell apart (Okabe and Ito 2008); the dashboard has the same."""
GREY: Final = "#6b6b6b"
"""What is not decided, where no arm is ahead, and lines that only help the eye."""
BETTER: Final = COLOURS[0]
WORSE: Final = COLOURS[5]
STYLE: Final[Any] = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.alpha": 0.25,
    "legend.frameon": False,
    "svg.hashsalt": "privateer",
    "text.parse_math": False,  # a dollar in a name is a dollar
}
_DPI: Final = 100
_PAGE_DPI: Final = 150
_CSS: Final = 96
"""CSS pixels of an inch."""
_LABEL: Final = 28
"""Characters of a label."""


def in_thousands(axis: Any) -> None:
    """Write large ticks of a horizontal axis as 20k."""
    axis.xaxis.set_major_formatter(lambda value, _: f"{value / 1000:g}k" if abs(value) >= 1000 else f"{value:g}")


@dataclass(frozen=True)
class Picture:
    """A figure with its words."""

    title: str  # what it shows, also for anybody who does not see it
    figure: "Figure"  # the ``matplotlib.figure.Figure``, to change it
    caption: str = ""  # what to read under it on a page
    vector: bool = True  # whether a page has it as vectors; one of very many parts is smaller in pixels

    def save(self, path: "str | PathLike[str]", dpi: int = 200) -> None:
        """Write the figure; the path's ending says how: .png, .svg, .pdf."""
        with _styled():
            self.figure.savefig(path, dpi=dpi)

    @property
    def source(self) -> str:
        """The picture as an address of its own, for a page."""
        kind, media = ("svg", "image/svg+xml") if self.vector else ("png", "image/png")
        body, metadata = io.BytesIO(), {"Date": None} if self.vector else None
        with _styled():
            self.figure.savefig(body, format=kind, dpi=_PAGE_DPI, bbox_inches="tight", metadata=metadata)
        return f"data:{media};base64,{base64.b64encode(body.getvalue()).decode()}"

    @property
    def width(self) -> int:
        """Its width on a page, in CSS pixels."""
        return round(_CSS * float(self.figure.get_size_inches()[0]))

    def _repr_png_(self) -> bytes:
        file = io.BytesIO()
        with _styled():
            self.figure.savefig(
                file, format="png", dpi=_DPI, metadata={"Software": None}, pil_kwargs={"optimize": True}
            )
        return file.getvalue()

    def __repr__(self) -> str:
        return f"<picture: {self.title}>"


@contextmanager
def _styled() -> Iterator[None]:
    with library("matplotlib").rc_context(STYLE):
        yield


@contextmanager
def drawing(title: str, panels: int = 1, height: float = 3.6, width: float = 6.6) -> Iterator[tuple[Picture, Any]]:
    """Give a picture and its axes, (panels,), to draw on; the title says in words what it shows, and is above it."""
    with _styled():
        figure = library("matplotlib.figure").Figure(figsize=(width, height), layout="constrained")
        axes = figure.subplots(1, panels, squeeze=False, sharey=True)[0]
        figure.suptitle(title, fontsize=10.5, x=0.01, ha="left")
        yield Picture(title, figure), axes


@contextmanager
def page_drawing(title: str, caption: str, height: float, *, vector: bool = True) -> Iterator[tuple[Picture, Any]]:
    """Give a picture of a page and its axis to draw on; the title is for anybody who does not see it."""
    with _styled():
        figure = library("matplotlib.figure").Figure(figsize=(4.8, height))
        yield Picture(printable(title), figure, printable(caption), vector), figure.subplots()


def whole_label(name: str) -> str:
    """Write a name as a label of a picture, which leaves out those that begin with an underscore."""
    return f" {printable(name)}" if name.startswith("_") else printable(name)


def label(name: str) -> str:
    """Write a name as a short label of a picture."""
    return whole_label(name if len(name) <= _LABEL else f"{name[: _LABEL - 1]}…")
