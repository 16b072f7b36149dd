"""All reproductions, by name."""

from typing import Final

from privateer_papers.paper_1.figures.figure_6 import FIGURE_6
from privateer_papers.paper_1.figures.figure_7 import FIGURE_7
from privateer_papers.paper_1.figures.figure_8 import FIGURE_8
from privateer_papers.paper_1.figures.figure_9 import FIGURE_9
from privateer_papers.paper_1.figures.table_2 import TABLE_2
from privateer_papers.paper_2.slopes import SLOPES
from privateer_papers.paper_3.regret import LASSO
from privateer_papers.paper_4.interval_peers import PEERS
from privateer_papers.paper_4.pareto import PARETO
from privateer_papers.paper_5.regret import FIGURE_2, TABLE_1
from privateer_papers.reproduction import Reproduction

REPRODUCTIONS: Final[dict[str, Reproduction]] = {
    made.name: made
    for made in (FIGURE_6, FIGURE_7, FIGURE_8, FIGURE_9, TABLE_2, SLOPES, LASSO, PARETO, PEERS, FIGURE_2, TABLE_1)
}
