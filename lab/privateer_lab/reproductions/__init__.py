"""Figures and tables of the papers, made again: one file each, found by name."""

from typing import Final

from privateer_lab.reproductions.base import Reproduction
from privateer_lab.reproductions.figure_6 import Figure6
from privateer_lab.reproductions.figure_7 import Figure7
from privateer_lab.reproductions.figure_8 import Figure8
from privateer_lab.reproductions.figure_9 import Figure9
from privateer_lab.reproductions.paper_5 import Figure2, Table1
from privateer_lab.reproductions.table_2 import Table2

REPRODUCTIONS: Final[dict[str, Reproduction]] = {
    made.name: made for made in (Figure6(), Figure7(), Figure8(), Figure9(), Table2(), Figure2(), Table1())
}
