"""Pictures in a notebook: drawn without a display, shown as PNG, saved as whatever matplotlib writes."""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike
from typing import TYPE_CHECKING, Any, Final

from privateer_lab.notebook.tables import library
from privateer_lab.style import STYLE

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_DPI: Final = 100


@dataclass(frozen=True)
class Picture:
    """A figure with its words.

    Attributes
    ----------
    title
        What it shows.
    figure
        The ``matplotlib.figure.Figure``, to change it.
    """

    title: str
    figure: "Figure"

    def save(self, path: "str | PathLike[str]", dpi: int = 200) -> None:
        """Write the figure; the path's ending says how: .png, .svg, .pdf."""
        with _styled():
            self.figure.savefig(path, dpi=dpi)

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
    """Give a picture and its axes, (panels,), to draw on; the title says in words what it shows."""
    with _styled():
        figure = library("matplotlib.figure").Figure(figsize=(width, height), layout="constrained")
        axes = figure.subplots(1, panels, squeeze=False, sharey=True)[0]
        figure.suptitle(title, fontsize=10.5, x=0.01, ha="left")
        yield Picture(title, figure), axes
