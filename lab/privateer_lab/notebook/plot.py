"""Pictures with one call: ``lab.plot.policy``, ``regret``, ``effects`` and ``privacy``; each returns a `Picture`."""

from collections.abc import Mapping
from os import PathLike
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from privateer_core.errors import SpecError
from privateer_core.privacy.certificate import Certificate, Claim, certify, read_certificate, recompute
from privateer_core.privacy.record_verification import read_certificates
from privateer_core.privacy.risk import list_certified_points
from privateer_core.spec.spec import Spec
from privateer_lab.notebook.evaluation import Evaluation
from privateer_lab.notebook.planned import Planned
from privateer_lab.notebook.policies import Array, LoadedPolicy, experiment_url
from privateer_lab.notebook.policies import policy as policy_of
from privateer_lab.notebook.replayed import Replayed
from privateer_lab.notebook.results import ExperimentResult
from privateer_lab.notebook.results import result as result_of
from privateer_lab.notebook.simulated import Simulated
from privateer_lab.notebook.specs import spec as read_spec
from privateer_lab.render.pictures import (
    COLOURS,
    DASHES,
    GREY,
    Picture,
    draw_answer,
    draw_estimates,
    draw_plan,
    draw_regret,
    finish_regret,
    open_picture,
)
from privateer_lab.render.policy_pictures import draw_map
from privateer_lab.services.rest import request_json

__all__ = ["Picture", "effects", "policy", "privacy", "regret"]

_N_EPSILONS: Final = 120
_MAX_EPSILON_FACTOR: Final = 1.2
"""Largest epsilon of the drawn privacy curve, as a multiple of the promised epsilon."""


def policy(
    subject: "LoadedPolicy | Simulated | Replayed | str | PathLike[str]", x: str | None = None, y: str | None = None
) -> Picture:
    """Draw the arm that a policy chooses, as a map of two features, with all other features at their medians.

    Parameters
    ----------
    subject
        A policy, a result that has a policy, or a source that `privateer_lab.policy` takes.
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
    source = subject.policy if isinstance(subject, Simulated | Replayed) else subject
    loaded = source if isinstance(source, LoadedPolicy) else policy_of(source)
    return draw_map(loaded.spec, loaded.shares_at, x, y)


def regret(subject: Simulated | Planned) -> Picture:
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
    if isinstance(subject, Planned):
        return draw_plan(subject.spec.name, "choices", subject.outcomes)
    if not isinstance(subject, Simulated):
        raise SpecError("has no regret", field="subject", remedy="give what lab.simulate or lab.plan returned")
    n_choices, summary = subject.runs[0].choices, subject.summary
    with open_picture(f"{subject.spec.name}: reward lost per choice") as (picture, (axis,)):
        draw_regret(
            axis, subject.path.columns, COLOURS[0], "-", f"mean of {len(subject.runs)} seeds", worst="worst seed"
        )
        axis.axhline(summary["uniform_regret"] / n_choices, color=GREY, linestyle=":", label="choosing at random")
        best = summary["best_constant_regret"] / n_choices
        axis.axhline(best, color=COLOURS[3], linestyle="--", label="the best arm for everybody")
        finish_regret(axis, "choices")
        axis.legend(fontsize=8)
    return picture


def effects(subject: "ExperimentResult | Simulated | Replayed | Evaluation | str") -> Picture:
    """Draw estimates with their intervals: effects of an experiment, or off-policy estimates.

    Parameters
    ----------
    subject
        A result of `privateer_lab.result`, `simulate`, `replay` or `evaluate`; or an experiment's name or address.

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
    if isinstance(subject, Evaluation):
        rows = [mean for mean in subject.values[:-1] if np.isfinite((mean.value, mean.low, mean.high)).all()]
        if not rows:
            raise SpecError("has no estimates yet", field="subject", remedy="wait for more people")
        title = f"mean reward, with {100 * subject.level:g} % intervals"
        return draw_estimates(title, rows, "mean reward of a choice")
    result = subject.result if isinstance(subject, Simulated | Replayed) else subject
    if isinstance(result, str):
        result = result_of(result)
    if result is None or not (result.answer.estimates or result.answer.effects):
        remedy = "draw lab.plot.policy"
        raise SpecError("has an algorithm that estimates no effects", field="subject", remedy=remedy)
    pictures = draw_answer(result.experiment, result.answer)
    if not pictures:
        raise SpecError("has no estimates yet", field="subject", remedy="wait for more people")
    return pictures[0]


def privacy(subject: "Simulated | Planned | Spec | Certificate | Mapping[str, Any] | str | PathLike[str]") -> Picture:
    """Draw the curve of the best attack on one participant, as the certified privacy curve bounds it.

    Parameters
    ----------
    subject
        A spec as `privateer_lab.spec` takes it, or a simulation: the promise is that of the spec's first round, as
        planned, or of all rounds simulated. A certificate or privacy record, as a document; or the name or address of
        an experiment on a server.

    Raises
    ------
    PrivateerError
        If there is no answer, no promise, or a claim that does not follow from its events.

    Examples
    --------
    >>> import privateer_lab as lab
    >>> lab.plot.privacy("examples/peaks-shuffle.toml")
    <picture: peaks-shuffle: what the best attack on one person achieves>
    """
    certificates = _read_certificates_by_cohort(subject)
    fpr = np.concatenate([[0.0], np.geomspace(1e-4, 1.0, 400)])
    if not any(claim.epsilon is not None for certificate in certificates.values() for claim in certificate.claims):
        remedy = "choose a trust model that promises something"
        raise SpecError("promises nothing", field="privacy.model", remedy=remedy)
    if not all(verdict.holds for certificate in certificates.values() for verdict in recompute(certificate)):
        remedy = "run privateer account verify to see which"
        raise SpecError("has a privacy claim that does not hold", field="subject", remedy=remedy)
    title = f"{certificates[''].experiment}: what the best attack on one person achieves"
    with open_picture(title, heights=(5.0,), width=5.4) as (picture, (axis,)):
        axis.plot([0, 1], [0, 1], color=GREY, linestyle=":", label="guessing without seeing anything")
        for index, (label, tpr) in enumerate(_list_attack_curves(certificates, fpr)):
            line_style = {"color": COLOURS[(0, 3, 2, 4)[index % 4]], "linestyle": DASHES[index % len(DASHES)]}
            axis.plot(fpr, tpr, label=label, **line_style)
        axis.set_aspect("equal")
        axis.set_xlim(0, 1)
        axis.set_ylim(0, 1)
        axis.set_xlabel("false positives: share of other records taken for this one")
        axis.set_ylabel("true positives: share of hits")
        axis.legend(fontsize=7.5, loc="lower right")
    return picture


def _list_attack_curves(certificates: Mapping[str, Certificate], fpr: Array) -> list[tuple[str, Array]]:
    """Return a label and true positive rates for each adversary and cohort; adversaries with equal rates are merged."""
    curves: list[tuple[str, Array]] = []
    for cohort, certificate in certificates.items():
        cohort_label = f", people of {cohort}" if cohort else ""
        cohort_curves: list[tuple[str, Array]] = []
        for claim in (candidate for candidate in certificate.claims if candidate.epsilon is not None):
            tpr, guarantee = max_true_positive_rates(claim, fpr), f"epsilon {claim.epsilon:.3g}, delta {claim.delta:g}"
            if cohort_curves and np.array_equal(cohort_curves[-1][1], tpr):
                cohort_curves[-1] = (f"{claim.adversary.partition(',')[0]}{cohort_label}:\n{guarantee}", tpr)
            else:
                cohort_curves.append((f"{claim.adversary}{cohort_label}:\n{guarantee}", tpr))
        curves += cohort_curves
    return curves


def _read_certificates_by_cohort(source: Any) -> dict[str, Certificate]:
    """Return certificates by cohort; the cohort of the experiment itself is ""."""
    if isinstance(source, Certificate):
        return {"": source}
    if isinstance(source, Simulated):
        if source.summary["certificate"] is None:
            field = f"{source.spec.name}: privacy.model"
            raise SpecError("promises nothing", field=field, remedy="choose another trust model")
        return {"": read_certificate(source.summary["certificate"])}
    if isinstance(source, Planned):
        source = source.spec
    if isinstance(source, Mapping) and ("claims" in source or "certificate" in source):
        return {"": read_certificate(source)} if "claims" in source else read_certificates(dict(source))
    if isinstance(source, str) and not source.endswith(".toml") and "\n" not in source:
        return read_certificates(request_json("GET", f"{experiment_url(source)}/privacy", field="url"))
    spec = read_spec(source)
    if spec.first_terms("") is None:
        raise SpecError("asks nobody", field="spec", remedy="raise experiment.horizon")
    cohorts = dict.fromkeys(("", *spec.cohorts, *spec.privacy.tier_names))
    planned = ((cohort, spec.first_terms(cohort)) for cohort in cohorts)
    return {
        cohort: certify(spec.name, spec.cohort_privacy(cohort), [terms], planned=True)
        for cohort, terms in planned
        if terms
    }


def max_true_positive_rates(claim: Claim, fpr: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the largest true positive rates, (n,), of an attack with these false positive rates.

    An attack tells a participant's record from an alternative record. At every epsilon with the curve's delta, the true
    positive rate is at most e^epsilon false + delta, and 1 - e^-epsilon (1 - delta - false), where false is the false
    positive rate (Kairouz, Oh and Viswanath 2015; Dong, Roth and Su 2022). Without a claim it may be 1.
    """
    rates = np.ones_like(fpr)
    for epsilon, delta in list_certified_points(claim, _N_EPSILONS, _MAX_EPSILON_FACTOR):
        lower, upper = np.exp(epsilon) * fpr + delta, 1 - np.exp(-epsilon) * (1 - delta - fpr)
        rates = np.minimum(rates, np.minimum(lower, upper))
    return np.clip(rates, fpr, 1.0)
