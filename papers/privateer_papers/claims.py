"""Set the papers' privacy claims beside what our accountant finds, and attack the noise that they calibrate."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from privateer_core.accounting.accountant import account
from privateer_core.accounting.events import Gaussian, Pure, Repeated
from privateer_core.accounting.gaussian import (
    classic_gaussian_standard_deviation,
    gaussian_epsilon,
    gaussian_standard_deviation,
)
from privateer_lab.cli.account import Batch, Delta, Epsilon, accounts
from privateer_lab.cli.command_line import Json
from privateer_lab.cli.output import print_json, print_table, screen
from privateer_lab.figures import named
from privateer_papers.paper_5.bits import published_bits, published_vectors
from privateer_papers.published_trust import PUBLISHED, classic_noise

if TYPE_CHECKING:  # the audit is loaded when somebody attacks
    from privateer_lab.audit.case import Case


def register(app: typer.Typer) -> None:
    """Add the commands to ``account``."""
    del app
    accounts.command("published")(published)
    accounts.command("published-bits")(bits_of_paper_5)


def published(
    paper: Annotated[
        int, typer.Argument(metavar="PAPER", min=1, max=5, help="The paper's number, as docs/accounting.md lists them.")
    ],
    as_json: Json = False,
) -> None:
    """Show what a paper claims, and what is true."""
    rows = claims_of(paper)
    if as_json:
        print_json({"paper": paper, "claims": rows})
        return
    for row in rows:
        screen.print(f"[bold]{row['claim']}[/bold]")
        figures = {key: value for key, value in row.items() if key not in ("claim", "source")}
        print_table(row["source"], named(figures))


def bits_of_paper_5(
    epsilon: Epsilon,
    delta: Delta,
    coordinates: Annotated[int, typer.Option(min=1, help="Number of coordinates of the vector.")],
    batch: Batch,
    as_json: Json = False,
) -> None:
    """Compute the bits with which paper 5 hides a shuffled sum of vectors, beside exact normal noise."""
    bits = published_bits(epsilon, delta, coordinates, batch)
    exact = gaussian_standard_deviation(epsilon, delta)
    result = {"bits_per_person": bits.bits, "against_analytic_gaussian": bits.standard_deviation / exact}
    if as_json:
        print_json(result)
    else:
        print_table("published bits", named(result))


def claims_of(paper: int) -> list[dict[str, Any]]:
    """Return the claims of a paper, 1 to 5, each with its source and the truth. An epsilon of None is infinite."""
    return _CLAIMS[paper]()


def _paper_1() -> list[dict[str, Any]]:
    return [
        {
            "claim": "LDPMAB is epsilon-LDP",
            "source": "the authors' public code",
            "claimed_epsilon": 1.0,
            "true_epsilon": None,
            "why": "noise is drawn only for bins on the person's own path, so a report shows which bin that is",
        },
        {
            "claim": "LDPMAB is epsilon-LDP",
            "source": "the paper, eq. (11) and (12), with noise for every bin",
            "claimed_epsilon": 1.0,
            "true_epsilon": account(Pure(1.0)).epsilon(0.0),
            "why": "true: Laplace noise of scale 4/epsilon hides two vectors that differ by 4 in L1. It is "
            "what the algorithm paper-1-ldpmab runs",
        },
    ]


def _classic(epsilon: float, delta: float, source: str) -> dict[str, Any]:
    curve = account(Gaussian(classic_gaussian_standard_deviation(epsilon, delta)))
    return {
        "claim": f"normal noise of sqrt(2 ln(1.25/delta))/epsilon is ({epsilon:g}, {delta:g})-private",
        "source": source,
        "claimed_epsilon": epsilon,
        "claimed_delta": delta,
        "true_delta": curve.delta(epsilon),
        "true_epsilon": curve.epsilon(delta),
        "why": "the classic calibration is proved only for epsilon below 1",
    }


def _paper_2() -> list[dict[str, Any]]:
    return [_classic(epsilon, 1e-5, "Gaussian reports of the linear and convex bandits") for epsilon in (0.5, 1, 4, 10)]


def _paper_3() -> list[dict[str, Any]]:
    return [
        {
            "claim": "PrivateLASSO is (epsilon, delta)-jointly private",
            "source": "the first selection S0, and the estimate on it",
            "claimed_epsilon": 1.0,
            "claimed_delta": 1e-6,
            "true_epsilon": None,
            "why": "S0 is thresholded without noise, and the sensitivity of the estimate is not bounded: one person "
            "at the threshold changes the publication with a probability near 1/2",
        }
    ]


def _paper_4() -> list[dict[str, Any]]:
    return [
        {
            "claim": "DP-ConSE is epsilon-private",
            "source": "randomised epoch lengths and two noisy means use epsilon each",
            "claimed_epsilon": 1.0,
            "true_epsilon": account(Repeated(Pure(1.0), 3)).epsilon(0.0),
            "why": "a replaced context moves the person to another bin, so the length and the means of both change",
        }
    ]


def _paper_5() -> list[dict[str, Any]]:
    rows = [_classic(e, d, "Theorems 1 and 2") for d in (0.25, 1e-6) for e in (1, 5, 10, 15)]
    for epsilon in (1.0, 5.0, 10.0, 15.0):
        bits = published_bits(epsilon, 0.25, 60, 1024)
        curve = account(bits.event)
        rows.append(
            {
                "claim": f"shuffled bits of eq. (22) are ({epsilon:g}, 0.25)-private, 1,024 people, 60 coordinates",
                "source": "Theorem 3 and eq. (22)",
                "claimed_epsilon": epsilon,
                "claimed_delta": 0.25,
                "true_delta": curve.delta(epsilon),
                "true_epsilon_at_1e-6": curve.epsilon(1e-6),
                "true_epsilon_at_1e-6_in_l2_by_the_normal_limit": gaussian_epsilon(1e-6, bits.standard_deviation),
                "bits_per_person_and_coordinate": bits.bits,
                "why": "the claim is true, but the noise is hundreds of times what the promise needs",
            }
        )
    return rows


_CLAIMS = {1: _paper_1, 2: _paper_2, 3: _paper_3, 4: _paper_4, 5: _paper_5}


def attacks(samples: int) -> list["Case"]:
    """Return attacks on paper 5's bits, and on textbook noise at an epsilon below 1, where alone it is private."""
    from privateer_core.mechanisms.vectors.vector_noise import CentralVectors, GaussianVectors
    from privateer_lab.audit.mechanisms.bounded_vectors import BALL, BOX, DELTA, PEOPLE, target
    from privateer_lab.audit.views import batches, mechanism_case, releases, reports

    claim, found = (0.9, DELTA), []
    for ball in (BALL, BOX):
        noise = classic_noise(ball, *claim)
        device, curator = target(GaussianVectors(ball, noise)), target(CentralVectors(ball, noise))
        count = max(2000, samples // 10)
        found += [
            mechanism_case(f"vectors in {ball.norm}", reports, device, claim, 4 * samples, PUBLISHED),
            mechanism_case(f"release in {ball.norm}", releases, curator, claim, count, PUBLISHED),
        ]
    bits, promise = published_vectors(BOX, 10.0, 0.01, PEOPLE), (10.0, 0.01)
    summed = mechanism_case("summed batch", batches, target(bits), promise, max(2000, samples // 20), PUBLISHED)
    return [*found, summed]
