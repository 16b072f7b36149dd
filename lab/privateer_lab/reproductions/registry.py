"""All reproductions, by name."""

from typing import Final

from privateer_lab.reproductions.base import Reproduction
from privateer_lab.reproductions.paper_1_figure_6 import FIGURE_6
from privateer_lab.reproductions.paper_1_figure_7 import FIGURE_7
from privateer_lab.reproductions.paper_1_figure_8 import FIGURE_8
from privateer_lab.reproductions.paper_1_figure_9 import FIGURE_9
from privateer_lab.reproductions.paper_1_table_2 import TABLE_2
from privateer_lab.reproductions.paper_2 import SLOPES
from privateer_lab.reproductions.paper_3 import LASSO
from privateer_lab.reproductions.paper_4 import PARETO
from privateer_lab.reproductions.paper_4_peers import PEERS
from privateer_lab.reproductions.paper_5 import FIGURE_2, TABLE_1

REPRODUCTIONS: Final[dict[str, Reproduction]] = {
    made.name: made
    for made in (FIGURE_6, FIGURE_7, FIGURE_8, FIGURE_9, TABLE_2, SLOPES, LASSO, PARETO, PEERS, FIGURE_2, TABLE_1)
}
