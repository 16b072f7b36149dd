"""Every numbered claim of the papers: a formula, a verdict with computed figures, the commands and the tests for it."""

from collections.abc import Sequence
from functools import cache
from typing import Any, Final, NamedTuple

from privateer_papers.computed_claims import list_claims
from privateer_papers.paper_1.figures.rates import DIMENSION, EXPONENT
from privateer_papers.paper_2.slopes import PrivateLoss
from privateer_papers.paper_5.rates import REGRET_POWER, TRAFFIC_POWERS


class NumberedClaim(NamedTuple):
    """A claim of a paper under the number that the paper gives it."""

    paper: int
    claim: str
    formula: str  # what is claimed or checked, in LaTeX
    verdict: str
    commands: str  # names of reproductions, commands or pages that show it, in Markdown
    tests: tuple[str, ...]  # files in tests/papers that compute it a second way


def list_numbered_claims() -> tuple[NumberedClaim, ...]:
    """Return all numbered claims in the order of the papers."""
    claims = zip((1, 2, 3, 4, 5), (_paper_1, _paper_2, _paper_3, _paper_4, _paper_5), strict=True)
    return tuple(NumberedClaim(paper, *row) for paper, make_rows in claims for row in make_rows())


def list_summaries(paper: int) -> tuple[str, ...]:
    """Return the computed sentences of a paper's chapter in the documentation."""
    return _SUMMARIES[paper]()


_Row = tuple[str, str, str, str, tuple[str, ...]]


@cache
def _find(paper: int, start: str) -> tuple[dict[str, Any], ...]:
    """Return the computed rows of a paper whose claims start with a text."""
    return tuple(row for row in list_claims(paper) if row["claim"].startswith(start))


def _thresholds(factor: int, paper: int = 5) -> dict[float, float]:
    """Return, by delta, the epsilon from which on a constant of normal noise is too small."""
    rows = _find(paper, f"normal noise of sqrt({factor} ln")
    return {row["claimed_delta"]: row["holds_up_to_epsilon"] for row in rows}


def _format_thresholds(thresholds: dict[float, float]) -> str:
    """List thresholds with their deltas in words."""
    parts = [f"{epsilon:.2f} at delta {_format_delta(delta)}" for delta, epsilon in thresholds.items()]
    return f"{', '.join(parts[:-1])} and {parts[-1]}"


def _format_delta(delta: float) -> str:
    return f"{delta:g}".removeprefix("0") if delta > _MIN_DECIMAL_DELTA else f"{delta:.0e}".replace("e-0", "e-")


def _paper_1() -> Sequence[_Row]:
    (ratio,) = (row["printed_tau_over_the_codes_at_d_2"] for row in _find(1, "Algorithm 1"))
    leaky, honest = (row["true_epsilon"] for row in _find(1, "LDPMAB"))
    assert leaky is None
    return (
        (
            "Algorithm 1, partitions by the longest edge",
            r"$k^* \sim \mathrm{Unif}(\arg\max_k (b_k - a_k)),\ \tau_s = 2 \sqrt{d}\, 2^{-s/d}$",
            f"the authors' code has tau {ratio:.2f} times smaller at d = 2, and waits for all arms, not one. "
            "As printed, bins are halved before an arm can be dropped: it loses what random arms lose",
            "`paper-1-figure-7`, `account published 1`; `paper-1-ldpmab`, our `partition`",
            ("test_leaky.py", "test_ldpmab_learner.py"),
        ),
        (
            "Algorithm 2, LDPMAB; Algorithm 3, with sources",
            r"$\tilde V = V + \frac{4}{\varepsilon} \xi,\ \tilde U = U + \frac{4}{\varepsilon} \zeta$",
            f"epsilon {honest:g} at a stated 1 with noise for every bin; the code is private at no epsilon",
            "`paper-1-ldpmab`, `account published 1`, baselines `ldpmab` and `leaky`",
            ("test_laplace_cells.py", "test_leaky.py"),
        ),
        (
            "Theorems 2.5 and 2.6, regret from below and above",
            r"$n (n \varepsilon^2)^{-(1 + \beta)/(2 + 2d)}$",
            f"by it n to the {1 - EXPONENT:.2f} at d = {DIMENSION}; as n with honest noise; ours more slowly",
            "`paper-1-rates`",
            ("test_rates.py",),
        ),
        (
            "Theorems 3.3 and 3.4, with sources",
            r"$n \left(n \varepsilon^2 + (\kappa^2 n_Q \varepsilon_Q^2)^{(2 + 2d)/(2 + 2d + 2\gamma)}\right)"
            r"^{-(1 + \beta)/(2 + 2d)}$",
            "with honest noise sources do not help; ours they do",
            "`paper-1-rates`",
            ("test_rates.py",),
        ),
        (
            "Proposition 2.7, intervals",
            r"$r = \sqrt{C_n \sum \lambda^2 \max(t / \varepsilon^2, U)} / \sum \lambda U$",
            "holds with our bounds",
            "`paper-1-proved`",
            ("test_ldpmab_learner.py", "test_proved.py"),
        ),
        ("Figures 1 to 3", "", "nothing to compute", "[learning](../learning.md)", ()),
        (
            "Figures 4 and 5",
            r"$f_k(x) = 2b/(1 + b),\ b = e^{-2K^2(x_1 - c_k)^2}$",
            "text and code have other centres: k / K and k / (K + 1)",
            "`paper-1-figure-4`, `paper-1-figure-5`",
            ("test_problem_of_paper_1.py",),
        ),
        (
            "Figure 6, a jump start",
            r"$\overline{R}_t$ at $x$",
            "sources help, as drawn",
            "`paper-1-figure-6`",
            ("test_reproductions.py",),
        ),
        (
            "Figures 7 to 9",
            "$n_{Q_m}$ people of the m-th source",
            "the published ones leak; with honest noise far above ours. Sources have the printed size each",
            "`paper-1-figure-7`, `paper-1-figure-8`, `paper-1-figure-9`",
            ("test_reproductions.py", "test_leaky.py", "test_rates.py"),
        ),
        (
            "Supplement, other rewards",
            "two arms that change places",
            "as in Figure 7",
            "`paper-1-supplement`",
            ("test_reproductions.py",),
        ),
        (
            "Tables 1 and 2, six methods on Adult, Jobs, Taxi",
            "$\\overline{Y} / \\overline{Y}_{\\mathrm{ABSE}}$",
            "ratios of Adult, after n/4 and n of one run; rank sums explained. Linear and NN learn here, and are near "
            "what a coin earns in print: noise is not the cause, and which step is, is not known. "
            "Which files the paper used is not known. Adult has the printed "
            "numbers of people; its seven sources are ours. The file and columns of Taxi are inferred, and Jobs and "
            "Taxi ran only on small made files",
            "`paper-1-table-2`, `paper-1-table-2-jobs`, `paper-1-table-2-taxi`",
            ("test_table_2.py",),
        ),
    )


def _paper_2() -> Sequence[_Row]:
    linear, logistic = _find(2, "the gradient")
    classic = _thresholds(2, 2)
    proxies = [PrivateLoss(1.0, delta).proxy for delta in (1e-5, 0.0)]
    return (
        (
            "Theorem 1, local privacy carries over",
            r"$M(D) \to f(M(D))$",
            "true",
            "[threat model](../threat-model.md)",
            (),
        ),
        (
            "Algorithm 1, one point; Theorems 2 and 3",
            r"$\sigma = 2B \sqrt{2 \ln(1.25/\delta)} / \varepsilon$",
            f"private up to epsilon {_format_thresholds(classic)}, proved below 1; settles by chance",
            "`account published 2`; `paper-2-bandit`, `paper-2-convex`",
            ("test_claims.py",),
        ),
        (
            "Corollary 4, Table 1",
            r"$\sqrt{T} / \varepsilon$",
            "slopes there",
            "`paper-2-table-1`, `paper-2-theorems`",
            ("test_slopes.py", "test_paper_2_theorems.py"),
        ),
        (
            "Algorithms 2 and 4, two points; Theorems 5 and 6",
            r"$f(x_1) - f(x_2) + Z$",
            "only if both points have the same noise",
            "`paper-2-convex`, `paper-2-table-1`",
            ("test_slopes.py",),
        ),
        (
            "Algorithms 3 and 5, contexts; Lemmas 1 and 2, Theorems 7 to 10",
            r"$\lvert g(z) - y \rvert \le C$",
            f"with linear means the gradient reaches {linear['true_bound']:g} where C is {linear['claimed_bound']:g}; "
            f"with logistic ones {logistic['true_bound']:.3f}, which is C. At chance to a million people",
            "`account published 2`; `paper-2-linear`, `paper-2-table-1`",
            ("test_claims.py", "test_slopes.py"),
        ),
        (
            "Theorem 11, bandits",
            r"$\ln T / \varepsilon^2$",
            "not as printed",
            "`paper-2-theorems`",
            ("test_paper_2_theorems.py",),
        ),
        (
            "Theorem 12, the best arm",
            r"$1/4 + \sigma^2$",
            f"in proportion: {proxies[0]:.1f} at epsilon 1 and delta 1e-5, where one randomized bit has "
            f"{proxies[1]:.2f}; with its constants hundreds of times our people",
            "`paper-2-theorems`",
            ("test_paper_2_theorems.py",),
        ),
    )


def _paper_3() -> Sequence[_Row]:
    (scale,) = (row["noise_scale"] for row in _find(3, "the selection"))
    (epsilon,) = (row["holds_from_epsilon"] for row in _find(3, "the support"))
    return (
        (
            "Algorithms 1 and 2, Theorem 1, Lemma 2",
            r"$\xi = \sqrt{32 \ln(1/\delta_1)} / \varepsilon'$",
            f"not private; noise of scale {scale:,.0f} beside estimates of 1, and negative coefficients are dropped",
            "`audit`, `account published 3`; `paper-3-regret`",
            ("test_paper_3.py", "test_claims.py"),
        ),
        (
            "Lemma 1, billboard; Propositions 1 and 2",
            r"$(\varepsilon, \delta)$, jointly",
            "true, and used",
            "our `sparse`",
            (),
        ),
        (
            "Lemmas 3 to 5, the support",
            r"$128\, s \ln(2 s^{3.5} / \beta) \ln(1/\delta) / \varepsilon \le \lambda \le \theta_{\min} / (4 w)$",
            f"nothing below epsilon {epsilon / 1e6:.0f} million",
            "`account published 3`, `paper-3-theorems`",
            ("test_paper_3_theorems.py", "test_claims.py"),
        ),
        (
            "Theorem 2, Lemma 6, with a margin; Theorem 3, Lemma 7, without",
            r"$s^{3/2} \ln^3 T / \varepsilon,\ s^{3/2} \sqrt{T} \ln^2 T / \varepsilon$",
            "PrivateLASSO grows as T",
            "`paper-3-theorems`, `paper-3-regret`",
            ("test_paper_3_theorems.py",),
        ),
        (
            "Theorem 4, from below",
            r"$\ln T \min\{s \ln d, s \ln d / \varepsilon\}$",
            "no price below epsilon 1",
            "`paper-3-theorems`",
            ("test_paper_3_theorems.py",),
        ),
    )


def _paper_4() -> Sequence[_Row]:
    (true_epsilon,) = (row["true_epsilon"] for row in _find(4, "DP-ConSE"))
    (lap,) = _find(4, "Lap+")
    people = _people_of_conse()
    return (
        (
            "Theorem 3.1, regret and error from below",
            r"$R \cdot e^{2/(2 + d)} \gtrsim 1$",
            "products of order 1",
            "`paper-4-welfare`, `paper-4-figure-1`",
            ("test_welfare.py",),
        ),
        (
            "Algorithm 1, ConSE; Theorem 3.2, Lemma 2.1, Corollary 2.2",
            r"$n / (2M) \ge R_1 = 128 \ln(16 n) + 1$",
            f"drops no arm before {people[0]} people; {people[1]} with two covariates, {people[2]} with three",
            "`account published 4`, `paper-4-dp-conse`, `paper-4-figure-1`",
            ("test_claims.py", "test_paper_4.py"),
        ),
        (
            "Algorithm 2, DP-ConSE; Lemmas 4.1 and 4.4, Corollary 4.2, Theorems 4.3 and 4.5",
            r"$e^{\varepsilon/2} + 1 - e^{\varepsilon m/2}$",
            f"costs {true_epsilon:g} times its epsilon; Lap+ has {lap['printed_probability']:.3f} for a probability "
            f"of {lap['true_probability']:.3f} (epsilon 1, m = 3)",
            "`account published 4`, `paper-4-dp-conse`, `paper-4-figure-1`, `audit`",
            ("test_claims.py", "test_dp_conse.py"),
        ),
        (
            "Theorem 4.6, welfare after the experiment",
            r"$n^{-1/(2 + d)} \sqrt{\ln n}$",
            "holds once arms are dropped",
            "`paper-4-welfare`; [a trial's answer](../effects.md#what-following-it-loses)",
            ("test_welfare.py",),
        ),
        (
            "Figure 1, the frontier",
            r"$n^{-\alpha},\ n^{-(1 - \alpha)/(2 + d)}$",
            "ours is beyond it",
            "`paper-4-figure-1`",
            ("test_paper_4.py",),
        ),
    )


def _people_of_conse() -> tuple[str, str, str]:
    """Return the people, by covariates, before whom ConSE drops no arm, in words."""
    (row,) = _find(4, "ConSE")
    people = [row[f"people_until_an_arm_can_be_dropped_d_{d}"] for d in (1, 2, 3)]
    return f"{round(people[0], -3):,.0f}", f"{people[1] / 1e6:.0f} million", f"{people[2] / 1e9:.1f} billion"


def _paper_5() -> Sequence[_Row]:
    return (
        (
            "Algorithm 1, DP-DPE; Algorithm 2, shuffled bits",
            r"$\pi_l$ over $\mathcal{D}_l$, $g(\pi_l) \le 2d$",
            "as printed",
            "`paper-5-dp-dpe`",
            ("test_paper_5.py",),
        ),
        (
            "Theorems 1, 2 and 8, normal noise",
            r"$\sigma = 2B \sqrt{2 s \ln(1.25/\delta)} / \varepsilon$; Theorem 2: $2B \sqrt{s \ln(1.25/\delta)} / "
            r"\varepsilon$",
            f"false from epsilon {_format_thresholds(_thresholds(2))} on. Theorem 2 lacks a sqrt(2), and is false from "
            f"{_format_thresholds(_thresholds(1))} on",
            "`account published 5`",
            ("test_claims.py",),
        ),
        (
            "Theorems 3 and 9, shuffled bits",
            r"$b = \lceil 180\, g^2 \ln(4s/\delta) / (\hat\varepsilon^2 \lvert U \rvert) \rceil$",
            f"true, with {_bit_noise_ratio():.0f} times the noise of exact normal noise at (10, .25)",
            "`account published 5`, `audit`",
            ("test_published_bits.py", "test_claims.py"),
        ),
        (
            "Theorems 4 to 7, regret and traffic",
            r"$T^{1 - \alpha/2}$",
            f"by them T to the {REGRET_POWER:g}; shuffled and local regret as published grows as T; ours under local "
            "exceeds it at first",
            "`paper-5-rates`",
            ("test_paper_5_rates.py",),
        ),
        (
            "Table 1",
            r"$O(d T^{\alpha})$, shuffled $O(d T^{3\alpha/2})$ bits",
            f"traffic by it T to the {TRAFFIC_POWERS['central']:g}, shuffled {TRAFFIC_POWERS['shuffle']:g}",
            "`paper-5-table-1`, `paper-5-rates`",
            ("test_paper_5_rates.py",),
        ),
        (
            "Figures 1 and 2",
            r"$R(T)/T$",
            "with the paper's bits shuffled is worse than central",
            "`paper-5-figure-2`",
            ("test_paper_5.py",),
        ),
    )


def _bit_noise_ratio() -> float:
    """Return the noise of the shuffled bits over exact normal noise at (10, .25)."""
    return float(next(row["noise_over_analytic_gaussian"] for row in _find(5, "shuffled bits of eq. (22) are (10,")))


def _summarize_paper_2() -> tuple[str, ...]:
    linear, logistic = _find(2, "the gradient")
    return (
        "Normal noise by the classic constant sqrt(2 ln(1.25 / delta)) / epsilon is proved below epsilon 1. It holds "
        f"up to {_format_thresholds(_thresholds(2, 2))}.",
        f"Theorem 9 bounds the gradient by C. With linear means and noise in [-1, 1] it reaches 2 C + 1 = "
        f"{linear['true_bound']:g}; with logistic means and rewards of 0 or 1 it keeps within C = "
        f"{logistic['true_bound']:.3f}.",
    )


def _summarize_paper_3() -> tuple[str, ...]:
    (scale,) = (row["noise_scale"] for row in _find(3, "the selection"))
    (epsilon,) = (row["holds_from_epsilon"] for row in _find(3, "the support"))
    return (
        f"The noise of the selection is {scale:,.0f} beside estimates of 1 at most, and Lemma 4 says nothing below "
        f"epsilon {epsilon / 1e6:.0f} million.",
        "Algorithm 2, line 7 is one-sided and drops negative coefficients; what runs here takes absolute values.",
    )


def _summarize_paper_4() -> tuple[str, ...]:
    people, (lap,) = _people_of_conse(), _find(4, "Lap+")
    return (
        f'The normaliser of Lap+ lacks a minus sign: its "probability" is {lap["printed_probability"]:.3f} where '
        f"{lap['true_probability']:.3f} is needed (epsilon 1, m = 3).",
        f"ConSE can drop no arm in a trial of fewer than {people[0]} people, or {people[1]} with two covariates.",
    )


def _summarize_paper_5() -> tuple[str, ...]:
    delta = next(row["true_delta"] for row in _find(5, "normal noise of sqrt(2 ln"))
    return (
        f"Its normal noise, stated as (10, .25), is (10, {delta:.3f}) in truth: the constant is too small from epsilon "
        f"{_format_thresholds(_thresholds(2))} on. Theorem 2 as printed lacks a sqrt(2): it is too small from epsilon "
        f"{_format_thresholds(_thresholds(1))} on.",
        f"Its shuffled bits have {_bit_noise_ratio():.0f} times the noise that they need at (10, .25): hardly any "
        "action is ever dropped.",
    )


def _summarize_paper_1() -> tuple[str, ...]:
    (ratio,) = (row["printed_tau_over_the_codes_at_d_2"] for row in _find(1, "Algorithm 1"))
    return (
        f"Algorithm 1 as printed halves a bin at tau = 2 sqrt(d) 2^(-s/d) once one arm is narrow, before an arm can be "
        f"dropped. The authors' code has tau {ratio:.2f} times smaller at d = 2, and waits for all arms.",
    )


_MIN_DECIMAL_DELTA: Final = 0.01
_SUMMARIES: Final = {
    1: _summarize_paper_1,
    2: _summarize_paper_2,
    3: _summarize_paper_3,
    4: _summarize_paper_4,
    5: _summarize_paper_5,
}
