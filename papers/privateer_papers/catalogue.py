"""The catalogue of all reproductions: figures and tables of the papers."""

from functools import cache

from privateer_papers.reproduction import Reproduction


@cache
def all_reproductions() -> dict[str, Reproduction]:
    """Return all reproductions by name, in the order of the papers."""
    from privateer_papers.paper_1.figures.jump_start import FIGURE_6
    from privateer_papers.paper_1.figures.problem import FIGURE_4, FIGURE_5
    from privateer_papers.paper_1.figures.rates import GROWTH
    from privateer_papers.paper_1.figures.regret import FIGURE_7, SUPPLEMENT
    from privateer_papers.paper_1.figures.sources import FIGURE_8, FIGURE_9
    from privateer_papers.paper_1.real_data.table_2 import TABLE_2, TABLE_2_JOBS, TABLE_2_TAXI
    from privateer_papers.paper_2.slopes import SLOPES
    from privateer_papers.paper_2.theorems import THEOREMS as THEOREMS_2
    from privateer_papers.paper_3.regret import LASSO
    from privateer_papers.paper_3.theorems import THEOREMS as THEOREMS_3
    from privateer_papers.paper_4.frontier import PARETO
    from privateer_papers.paper_4.interval_peers import PEERS
    from privateer_papers.paper_4.welfare import WELFARE
    from privateer_papers.paper_5.phased_regret import FIGURE_2, TABLE_1
    from privateer_papers.paper_5.rates import RATES

    reproductions = (
        *(FIGURE_4, FIGURE_5, FIGURE_6, FIGURE_7, FIGURE_8, FIGURE_9),
        *(SUPPLEMENT, GROWTH, TABLE_2, TABLE_2_JOBS, TABLE_2_TAXI),
        *(SLOPES, THEOREMS_2, LASSO, THEOREMS_3, PARETO, WELFARE, PEERS, FIGURE_2, TABLE_1, RATES),
    )
    return {reproduction.name: reproduction for reproduction in reproductions}
