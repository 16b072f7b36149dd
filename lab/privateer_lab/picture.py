"""Pictures of pages and notebooks: drawn without a display, shown as PNG or SVG, saved as matplotlib can."""

import base64
import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike
from typing import TYPE_CHECKING, Any, Final

from privateer_core.errors import printable
from privateer_lab.notebook.tabular import library
from privateer_lab.pages.style import STYLE

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_DPI: Final = 100
_PAGE_DPI: Final = 150
_CSS: Final = 96
"""CSS pixels of an inch."""
_LABEL: Final = 28
"""Characters of a label."""


@dataclass(frozen=True)
class Picture:
    """A figure with its words.

    Attributes
    ----------
    title
        What it shows, also for whoever does not see it.
    figure
        The ``matplotlib.figure.Figure``, to change it.
    caption
        What to read under it on a page.
    vector
        Whether a page has it as vectors; one of very many parts is smaller in pixels.
    """

    title: str
    figure: "Figure"
    caption: str = ""
    vector: bool = True

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
    """Give a picture of a page and its axis to draw on; the title is for whoever does not see it."""
    with _styled():
        figure = library("matplotlib.figure").Figure(figsize=(4.8, height))
        yield Picture(printable(title), figure, printable(caption), vector), figure.subplots()


def whole_label(name: str) -> str:
    """Write a name as a label of a picture, which leaves out those that begin with an underscore."""
    return f" {printable(name)}" if name.startswith("_") else printable(name)


def label(name: str) -> str:
    """Write a name as a short label of a picture."""
    return whole_label(name if len(name) <= _LABEL else f"{name[: _LABEL - 1]}…")
