"""The papers' privacy claims beside the accountant's results, and attacks on the papers' calibrated noise."""

import math
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from privateer_core.accounting.accountant import account
from privateer_core.accounting.events import Gaussian, Pure, Repeated
from privateer_core.accounting.gaussian import gaussian_delta, gaussian_epsilon, gaussian_standard_deviation
from privateer_core.accounting.numerics import find_root
from privateer_lab.cli.account import Batch, Delta, Epsilon, accounts
from privateer_lab.cli.command_line import Json
from privateer_lab.cli.output import print_json, print_table, screen
from privateer_lab.render.words import name_figures
from privateer_papers.paper_5.bits import published_bits, published_vectors
from privateer_papers.published_trust import PUBLISHED, classic_noise

if TYPE_CHECKING:  # the audit is loaded when somebody attacks
    from privateer_lab.audit.case import Case


def register(app: typer.Typer) -> None:
    """Add the commands to ``account``."""
    del app
    accounts.command("published")(show_claims)
    accounts.command("published-bits")(show_published_bits)


def show_claims(
    paper: Annotated[
        int, typer.Argument(metavar="PAPER", min=1, max=5, help="The paper's number, as docs/accounting.md lists them.")
    ],
    as_json: Json = False,
) -> None:
    """Show a paper's privacy claims beside the privacy that the accountant computes."""
    rows = list_claims(paper)
    if as_json:
        print_json({"paper": paper, "claims": rows})
        return
    for row in rows:
        screen.print(f"[bold]{row['claim']}[/bold]")
        figures = {key: value for key, value in row.items() if key not in ("claim", "source")}
        print_table(row["source"], name_figures(figures))


def show_published_bits(
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
        print_table("published bits", name_figures(result))


def list_claims(paper: int) -> list[dict[str, Any]]:
    """Return the claims of a paper, 1 to 5, each with its source and the truth. An epsilon of None is infinite."""
    return _CLAIMS[paper]()


def _paper_1_claims() -> list[dict[str, Any]]:
    """List the checked claims of paper 1, with the true values and the reasons."""
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
        {
            "claim": "Algorithm 1 splits one of the longest edges at random, at tau = 2 sqrt(d) 2^(-s/d), for one arm",
            "source": "the paper, beside the authors' public code",
            "why": "the code takes turns among edges, at tau = 2^(-s/d), for all arms, as the algorithm here does",
        },
    ]


def _check_normal_noise(delta: float, source: str, factor: float = 2.0, epsilon: float = 10.0) -> dict[str, Any]:
    """Return the largest epsilon at which a constant of normal noise is valid, and the true delta above it."""
    scale = math.sqrt(factor * math.log(1.25 / delta))
    max_epsilon = find_root(lambda e: gaussian_delta(e, scale / e, 1.0) - delta, _MIN_EPSILON, epsilon)
    curve = account(Gaussian(scale / epsilon))
    return {
        "claim": f"normal noise of sqrt({factor:g} ln(1.25/delta))/epsilon is (epsilon, {delta:g})-private",
        "source": source,
        "holds_up_to_epsilon": max_epsilon,
        "claimed_epsilon": epsilon,
        "claimed_delta": delta,
        "true_delta": curve.delta(epsilon),
        "true_epsilon": curve.epsilon(delta),
        "why": "the proof is for epsilon below 1; the accountant finds where the noise is too small",
    }


def _paper_2_claims() -> list[dict[str, Any]]:
    """List the checked claims of paper 2, with the true values and the reasons."""
    normal = [_check_normal_noise(delta, "Gaussian reports of the linear and convex bandits") for delta in _DELTAS]
    gradient = {
        "claim": "the gradient of the generalized linear loss is bounded by C",
        "source": "Theorem 9",
        "why": "its bound is 2 C + 1, and 1 for logistic rewards: noise for C is too small",
    }
    return [*normal, gradient]


def _paper_3_claims() -> list[dict[str, Any]]:
    """List the checked claims of paper 3, with the true values and the reasons."""
    return [
        {
            "claim": "PrivateLASSO is (epsilon, delta)-jointly private",
            "source": "the first selection S0, and the estimate on it",
            "claimed_epsilon": 1.0,
            "claimed_delta": 1e-6,
            "true_epsilon": None,
            "why": "S0 is thresholded without noise, and the sensitivity of the estimate is not bounded: one person "
            "at the threshold changes the publication with a probability near 1/2",
        },
        {
            "claim": "features whose estimate is above the threshold are kept",
            "source": "Algorithm 2, line 7",
            "why": "printed one-sided, it drops every negative coefficient: what runs here takes the absolute value",
        },
    ]


def _no_change_probability(epsilon: float, length: float) -> float:
    """Return the probability of no change by paper 4's Lap+, whose normaliser has e^(epsilon length / 2)."""
    root_factor = math.exp(epsilon / 2)
    return (root_factor - 1) / (root_factor + 1 - math.exp(epsilon * length / 2))


def _paper_4_claims() -> list[dict[str, Any]]:
    """List the checked claims of paper 4, with the true values and the reasons."""
    return [
        {
            "claim": "DP-ConSE is epsilon-private",
            "source": "randomised epoch lengths and two noisy means use epsilon each",
            "claimed_epsilon": 1.0,
            "true_epsilon": account(Repeated(Pure(1.0), 3)).epsilon(0.0),
            "why": "a replaced context moves the person to another bin, so the length and the means of both change",
        },
        {
            "claim": "Lap+ gives probabilities: no change of a length of 3 at epsilon 1",
            "source": "its normaliser, e^(epsilon/2) + 1 - e^(epsilon m/2) as printed",
            "printed_probability": _no_change_probability(1.0, 3.0),
            "true_probability": _no_change_probability(1.0, -3.0),
            "why": "the last exponent lacks a minus sign; what runs here has it",
        },
    ]


def _paper_5_claims() -> list[dict[str, Any]]:
    """List the checked claims of paper 5, with the true values and the reasons."""
    rows = [_check_normal_noise(delta, "Theorem 1") for delta in _DELTAS]
    rows += [
        _check_normal_noise(delta, "Theorem 2 as printed, without the 2 under the root", factor=1.0)
        for delta in _DELTAS
    ]
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


_DELTAS: Final = (0.25, 1e-3, 1e-5, 1e-6)
_MIN_EPSILON: Final = 1e-2
_CLAIMS = {1: _paper_1_claims, 2: _paper_2_claims, 3: _paper_3_claims, 4: _paper_4_claims, 5: _paper_5_claims}


def attacks(samples: int) -> list["Case"]:
    """Return attacks on paper 5's bits, and on textbook noise at an epsilon below 1, where it is proved."""
    from privateer_core.mechanisms.vectors.vector_noise import CentralVectors, GaussianVectors
    from privateer_lab.audit.mechanisms.bounded_vectors import BALL, BOX, DELTA, N_PARTICIPANTS, opposite_ends
    from privateer_lab.audit.views import attack_batches, attack_releases, attack_reports, mechanism_case

    claim, cases = (0.9, DELTA), []
    for ball in (BALL, BOX):
        noise = classic_noise(ball, *claim)
        device, curator = opposite_ends(GaussianVectors(ball, noise)), opposite_ends(CentralVectors(ball, noise))
        n_samples = max(2000, samples // 10)
        cases += [
            mechanism_case(f"vectors in {ball.norm}", attack_reports, device, claim, 4 * samples, PUBLISHED),
            mechanism_case(f"release in {ball.norm}", attack_releases, curator, claim, n_samples, PUBLISHED),
        ]
    bits, promise = published_vectors(BOX, 10.0, 0.01, N_PARTICIPANTS), (10.0, 0.01)
    summed = mechanism_case(
        "summed batch", attack_batches, opposite_ends(bits), promise, max(2000, samples // 20), PUBLISHED
    )
    return [*cases, summed]
