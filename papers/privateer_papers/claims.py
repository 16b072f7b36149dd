"""The papers' privacy claims beside the accountant's results, and attacks on the papers' calibrated noise."""

import re
from typing import TYPE_CHECKING, Annotated, Final

import typer

from privateer_lab.cli.account import accounts
from privateer_lab.cli.command_line import Json
from privateer_lab.cli.output import print_json, print_rows, print_table, screen
from privateer_lab.render.words import name_figures
from privateer_papers.published_trust import PUBLISHED, classic_noise, published_vectors

if TYPE_CHECKING:  # the audit is loaded when somebody attacks
    from privateer_lab.audit.case import Case

_MARKUP: Final = re.compile(r"`([^`]*)`|\[([^]]*)\]\([^)]*\)")
"""Code and links in Markdown, whose words a terminal shows alone."""


def register(app: typer.Typer) -> None:
    """Add the command to ``account``."""
    del app
    accounts.command("published")(show_claims)


def show_claims(
    paper: Annotated[
        int, typer.Argument(metavar="PAPER", min=1, max=5, help="The paper's number, as docs/papers.md lists them.")
    ],
    as_json: Json = False,
) -> None:
    """Compute which of a paper's promises are true: verdicts by number, then privacy, constants and sizes."""
    from privateer_papers.computed_claims import list_claims, list_numbered_claims

    rows = list_claims(paper)
    numbered = [claim._asdict() for claim in list_numbered_claims() if claim.paper == paper]
    if as_json:
        print_json({"paper": paper, "numbered": numbered, "claims": rows})
        return
    columns = {"claim": "claim", "verdict": "verdict", "commands": "shown by"}
    table = [{name: _MARKUP.sub(r"\1\2", claim[key]) for key, name in columns.items()} for claim in numbered]
    print_rows(f"paper {paper}", table)
    for row in rows:
        screen.print(f"[bold]{row['claim']}[/bold]")
        figures = {key: value for key, value in row.items() if key not in ("claim", "source")}
        print_table(row["source"], name_figures(figures))


def attacks(samples: int) -> list["Case"]:
    """Return attacks on paper 5's bits, and on textbook noise at an epsilon below 1, where it is proved."""
    from privateer_core.mechanisms.vectors.vector_noise import CentralVectors, GaussianVectors
    from privateer_lab.audit.mechanisms.bounded_vectors import BALL, BOX, DELTA, N_PARTICIPANTS, build_target
    from privateer_lab.audit.views import attack_batches, attack_releases, attack_reports, mechanism_case

    claim, cases = (0.9, DELTA), []
    for ball in (BALL, BOX):
        noise = classic_noise(ball, *claim)
        device, curator = (build_target(GaussianVectors(ball, noise)), build_target(CentralVectors(ball, noise)))
        n_samples = max(2000, samples // 10)
        cases += [
            mechanism_case(f"vectors in {ball.norm}", attack_reports, device, claim, 4 * samples, PUBLISHED),
            mechanism_case(f"release in {ball.norm}", attack_releases, curator, claim, n_samples, PUBLISHED),
        ]
    bits, promise = published_vectors(BOX, 10.0, 0.01, N_PARTICIPANTS), (10.0, 0.01)
    summed = mechanism_case(
        "summed batch", attack_batches, build_target(bits), promise, max(2000, samples // 20), PUBLISHED
    )
    return [*cases, summed]
