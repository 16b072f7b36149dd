"""Pictures with one call: ``lab.plot.policy``, ``regret``, ``effects`` and ``privacy``; each returns a `Picture`."""

from collections.abc import Mapping
from os import PathLike
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from privateer_core.accounting.accountant import account
from privateer_core.accounting.events import Event, Parallel
from privateer_core.errors import SpecError
from privateer_core.privacy.certificate import Certificate, Claim, certify, read_certificate, recompute
from privateer_core.privacy.record_verification import read_certificates
from privateer_core.spec.spec import Spec
from privateer_lab.answer_words import rows_drawn
from privateer_lab.notebook.evaluation import Evaluation
from privateer_lab.notebook.planned import Planned
from privateer_lab.notebook.policies import Array, LoadedPolicy, address, draw_map
from privateer_lab.notebook.policies import policy as policy_of
from privateer_lab.notebook.replayed import Replayed
from privateer_lab.notebook.results import Found
from privateer_lab.notebook.results import result as result_of
from privateer_lab.notebook.simulated import Simulated
from privateer_lab.notebook.specs import spec as read
from privateer_lab.notebook.tabular import library
from privateer_lab.picture import COLOURS, Picture, drawing, in_thousands
from privateer_lab.services.rest import ask

__all__ = ["Picture", "effects", "policy", "privacy", "regret"]

_DASHES: Final = ("-", "--", "-.", ":")
_SHOWN: Final = 40
"""Most effects of a picture."""
_GREY: Final = "#777777"
_EPSILONS: Final = 120
_BEYOND: Final = 1.2
"""The curve is read up to so many times the promised epsilon."""


def policy(
    what: "LoadedPolicy | Simulated | Replayed | str | PathLike[str]", x: str | None = None, y: str | None = None
) -> Picture:
    """Draw which arm a policy gives to whom: a map of two features, with the others in the middle.

    Parameters
    ----------
    what
        A policy, what has one, or what `privateer_lab.policy` takes.
    x, y
        Features to the right and up; the first two by default.

    Raises
    ------
    SpecError
        If a feature is unknown.

    Examples
    --------
    >>> import privateer_lab as lab
    >>> lab.plot.policy(lab.simulate("examples/peaks-local.toml", users=3000, seeds=1))
    <picture: peaks-local: the arm that people get>
    """
    found = what.policy if isinstance(what, Simulated | Replayed) else what
    return draw_map(found if isinstance(found, LoadedPolicy) else policy_of(found), x, y)


def regret(what: Simulated | Planned) -> Picture:
    """Draw the mean regret of a choice against the number of choices, of a simulation or of a plan.

    Raises
    ------
    SpecError
        If it is neither.

    Examples
    --------
    >>> import privateer_lab as lab
    >>> lab.plot.regret(lab.simulate("examples/peaks-local.toml", users=3000, seeds=2))
    <picture: peaks-local: reward lost per choice>
    """
    if isinstance(what, Planned):
        return _planned(what)
    if not isinstance(what, Simulated):
        raise SpecError("has no regret", field="what", remedy="give what lab.simulate or lab.plan returned")
    people, summary = what.runs[0].choices, what.summary
    with drawing(f"{what.spec.name}: reward lost per choice") as (picture, (axis,)):
        _draw_regret(axis, what.path.columns, COLOURS[0], "-", f"mean of {len(what.runs)} seeds", worst="worst seed")
        axis.axhline(summary["uniform_regret"] / people, color=_GREY, linestyle=":", label="choosing at random")
        best = summary["best_constant_regret"] / people
        axis.axhline(best, color=COLOURS[3], linestyle="--", label="the best arm for everybody")
        _finish_regret(axis)
        axis.legend(fontsize=8)
    return picture


def _planned(made: Planned) -> Picture:
    models = list(dict.fromkeys(one["model"] for one in made.outcomes))
    epsilons = list(dict.fromkeys(one["epsilon"] for one in made.outcomes))
    title, width = f"{made.spec.name}: reward lost per choice, by trust model", max(6.6, 2.2 + 1.7 * len(models))
    with drawing(title, len(models), width=width, height=3.3) as (picture, axes):
        for axis, model in zip(axes, models, strict=True):
            for one in (one for one in made.outcomes if one["model"] == model):
                place = epsilons.index(one["epsilon"])
                path = {name: [point[name] for point in one["path"]] for name in one["path"][0]}
                look = COLOURS[place % len(COLOURS)], _DASHES[place % len(_DASHES)]
                _draw_regret(axis, path, *look, f"epsilon {one['epsilon']:g}")
            _finish_regret(axis, "" if axis is not axes[0] else None)
            axis.set_title(model, fontsize=9)
        axes[-1].legend(fontsize=8, loc="upper left", bbox_to_anchor=(1.01, 1.0))
    return picture


def _draw_regret(axis: Any, path: Mapping[str, Any], colour: str, dashes: str, label: str, worst: str = "") -> None:
    axis.plot(path["people"], path["regret_mean"], color=colour, linestyle=dashes, label=label)
    if worst:
        axis.fill_between(
            path["people"], path["regret_mean"], path["regret_worst"], color=colour, alpha=0.18, label=worst
        )


def _finish_regret(axis: Any, label: str | None = None) -> None:
    axis.set_xscale("log")
    ticker = library("matplotlib.ticker")
    axis.xaxis.set_major_locator(ticker.LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.xaxis.set_minor_formatter(ticker.NullFormatter())
    in_thousands(axis)
    axis.set_ylim(bottom=0)
    axis.set_xlabel("choices so far")
    axis.set_ylabel("reward lost per choice, in its units" if label is None else label)


def effects(what: "Found | Simulated | Replayed | Evaluation | str") -> Picture:
    """Draw estimates with their intervals: effects of an experiment, or off-policy estimates.

    Parameters
    ----------
    what
        What `privateer_lab.result`, `simulate`, `replay` or `evaluate` returned; or an experiment's name or address.

    Raises
    ------
    SpecError
        If the experiment has no estimates.

    Examples
    --------
    >>> import privateer_lab as lab
    >>> log = {"arm": ["a", "b"] * 20, "reward": [0, 1, 1, 1] * 10, "x": range(40)}
    >>> lab.plot.effects(lab.evaluate(log, "b", context=["x"], propensity=0.5))
    <picture: mean reward, with 95 % intervals>
    """
    if isinstance(what, Evaluation):
        rows = [(one.name, one.value, one.low, one.high, True) for one in what.values[:-1]]
        return _forest(f"mean reward, with {_percent(what.level)} intervals", rows, "mean reward of a choice", None)
    found = what.found if isinstance(what, Simulated | Replayed) else what
    if isinstance(found, str):
        found = result_of(found)
    if found is None or not (found.said.estimates or found.said.effects):
        remedy = "draw lab.plot.policy"
        raise SpecError("has an algorithm that estimates no effects", field="what", remedy=remedy)
    rows = _estimates(found)
    sure = "" if found.confidence is None else f", with {_percent(found.confidence)} intervals"
    title = f"{found.experiment}: estimates{sure}"
    return _forest(title, rows, *(("difference in mean reward", 0.0) if found.said.effects else ("estimate", None)))


def _estimates(found: Found) -> list[tuple[str, float, float, float, bool]]:
    """Return name, value, interval and whether it is decided of every estimate that there is, decided ones first."""
    rows = [(one.name, one.value, one.low, one.high, one.decided is not False) for one in rows_drawn(found.said)]
    rows = [row for row in rows if np.isfinite(row[1:4]).all()]
    if not rows:
        raise SpecError("has no estimates yet", field="what", remedy="wait for more people")
    return rows


def _forest(title: str, rows: list[tuple[str, float, float, float, bool]], label: str, zero: float | None) -> Picture:
    shown = rows[: max(_SHOWN, sum(decided for *_, decided in rows) if zero is not None else 0)]
    with drawing(title, height=max(1.7, 0.9 + 0.27 * len(shown))) as (picture, (axis,)):
        for place, (_, value, low, high, decided) in enumerate(shown):
            if np.isnan(value):
                continue
            axis.plot([low, high], [place, place], color=COLOURS[0], linewidth=2, solid_capstyle="butt")
            face = COLOURS[0] if decided else "white"
            axis.plot([value], [place], marker="o", color=COLOURS[0], markerfacecolor=face, markersize=6)
        if zero is not None:
            axis.axvline(zero, color=_GREY, linewidth=1)
            axis.plot([], [], "o", color=COLOURS[0], label="decided")
            axis.plot([], [], "o", color=COLOURS[0], markerfacecolor="white", label="not decided")
            axis.legend(
                fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.55 / (0.9 + 0.27 * len(shown))), ncols=2
            )
        axis.set_yticks(range(len(shown)), [name for name, *_ in shown])
        axis.set_ylim(len(shown) - 0.4, -0.6)
        axis.grid(visible=False, axis="y")
        more = f"; {len(rows) - len(shown)} more are not shown" if len(rows) > len(shown) else ""
        axis.set_xlabel(f"{label} (units of rewards){more}")
    return picture


def privacy(what: "Simulated | Planned | Spec | Certificate | Mapping[str, Any] | str | PathLike[str]") -> Picture:
    """Draw what the best attack on one person achieves: true positives against false ones, by the certified curve.

    Parameters
    ----------
    what
        A spec as `privateer_lab.spec` takes it, or what was simulated: the promise is that of its first round, as
        planned, or of all rounds simulated. A certificate or privacy record, as a document; or the name or address of
        an experiment on a server.

    Raises
    ------
    PrivateerError
        If there is no answer, or what is given promises nothing, or claims what does not follow from its events.

    Examples
    --------
    >>> import privateer_lab as lab
    >>> lab.plot.privacy("examples/peaks-shuffle.toml")
    <picture: peaks-shuffle: what the best attack on one person achieves>
    """
    certificates = _certificates(what)
    false = np.concatenate([[0.0], np.geomspace(1e-4, 1.0, 400)])
    if not any(claim.epsilon is not None for one in certificates.values() for claim in one.claims):
        raise SpecError(
            "promises nothing", field="privacy.model", remedy="choose a trust model that promises something"
        )
    if not all(verdict.holds for one in certificates.values() for verdict in recompute(one)):
        remedy = "privateer account verify says which"
        raise SpecError("has a claim that does not hold", field="what", remedy=remedy)
    title = f"{certificates[''].experiment}: what the best attack on one person achieves"
    with drawing(title, height=5.0, width=5.4) as (picture, (axis,)):
        axis.plot([0, 1], [0, 1], color=_GREY, linestyle=":", label="guessing without seeing anything")
        for place, (said, true) in enumerate(_attackers(certificates, false)):
            look = {"color": COLOURS[(0, 3, 2, 4)[place % 4]], "linestyle": _DASHES[place % len(_DASHES)]}
            axis.plot(false, true, label=said, **look)
        axis.set_aspect("equal")
        axis.set_xlim(0, 1)
        axis.set_ylim(0, 1)
        axis.set_xlabel("false positives: share of other records taken for this one")
        axis.set_ylabel("true positives: share of hits")
        axis.legend(fontsize=7.5, loc="lower right")
    return picture


def _attackers(certificates: Mapping[str, Certificate], false: Array) -> list[tuple[str, Array]]:
    """Return who is curious about whom, with their curve; those who achieve the same are together."""
    found: list[tuple[str, Array]] = []
    for cohort, certificate in certificates.items():
        whose = f", people of {cohort}" if cohort else ""
        own: list[tuple[str, Array]] = []
        for claim in (one for one in certificate.claims if one.epsilon is not None):
            true, said = true_positives(claim, false), f"epsilon {claim.epsilon:.3g}, delta {claim.delta:g}"
            if own and np.array_equal(own[-1][1], true):
                own[-1] = (f"{claim.against.partition(',')[0]}{whose}:\n{said}", true)
            else:
                own.append((f"{claim.against}{whose}:\n{said}", true))
        found += own
    return found


def _certificates(what: Any) -> dict[str, Certificate]:
    """Return certificates by cohort; the experiment's own people are ""."""
    if isinstance(what, Certificate):
        return {"": what}
    if isinstance(what, Simulated):
        return {"": _read(what.summary["certificate"], what.spec)}
    if isinstance(what, Planned):
        what = what.spec
    if isinstance(what, Mapping) and ("claims" in what or "certificate" in what):
        return {"": read_certificate(what)} if "claims" in what else read_certificates(dict(what))
    if isinstance(what, str) and not what.endswith(".toml") and "\n" not in what:
        return read_certificates(ask("GET", f"{address(what)}/privacy", field="url"))
    spec = read(what)
    if spec.planned("") is None:
        raise SpecError("asks nobody", field="spec", remedy="raise experiment.horizon")
    planned = ((cohort, spec.planned(cohort)) for cohort in ("", *filter(None, spec.cohorts)))
    return {
        cohort: certify(spec.name, spec.privacy_of(cohort), [terms], planned=True) for cohort, terms in planned if terms
    }


def _read(document: Any, spec: Spec) -> Certificate:
    if document is None:
        raise SpecError("promises nothing", field=f"{spec.name}: privacy.model", remedy="choose another trust model")
    return read_certificate(document)


def _percent(level: float) -> str:
    return f"{100 * level:g} %"


def true_positives(claim: Claim, false: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the largest share of true positives, (n,), of an attack with these shares of false ones.

    An attack says whether a person's record is this one or another one. At every epsilon with the curve's delta, true
    positives are at most e^epsilon false + delta, and 1 - e^-epsilon (1 - delta - false) (Kairouz, Oh and Viswanath
    2015; Dong, Roth and Su 2022). Where nothing is claimed they may be 1.
    """
    if claim.epsilon is None:
        return np.ones_like(false)
    found = np.ones_like(false)
    for epsilon, delta in curve(claim):
        lower, upper = np.exp(epsilon) * false + delta, 1 - np.exp(-epsilon) * (1 - delta - false)
        found = np.minimum(found, np.minimum(lower, upper))
    return np.clip(found, false, 1.0)


def curve(claim: Claim) -> list[tuple[float, float]]:
    """Return epsilons with the certified delta at each, the claim's own among them."""
    assert claim.epsilon is not None
    points = [(claim.epsilon, claim.delta)]
    if claim.event is not None:
        steps = np.linspace(0.0, _BEYOND * claim.epsilon, _EPSILONS).tolist()
        points += [(one, _delta(claim.event, one) + claim.sampling) for one in steps]
    return [(epsilon, min(1.0, delta)) for epsilon, delta in points]


def _delta(event: Event, epsilon: float) -> float:
    """Return the curve at an epsilon; of rounds with other people in each the worst counts."""
    if isinstance(event, Parallel):
        return max(_delta(one, epsilon) for one in event.events)
    return account(event).delta(epsilon)
