"""Policies as they are after a while: vectors of a first round alone would leave most of a policy out."""

from dataclasses import replace
from typing import Any

import msgspec
import numpy as np

from privateer_core.algorithms.additive.spec import AdditiveSpec
from privateer_core.algorithms.trial.learned_slopes import LearnedSlope
from privateer_core.mechanisms.cell_pairs import CellTriples
from privateer_core.mechanisms.event_symbol import EventSymbol
from privateer_core.mechanisms.named_symbol import NamedSymbol
from privateer_core.primitives.questions import KeyedMeans
from privateer_core.spec.spec import Spec
from tests.documents import vectors


def grown_events(policy: Any, spec: Spec) -> Any:
    """A grown partition whose reports say whether there was an event."""
    grown = vectors.grown_partition(policy, spec)
    layout, privacy, honest = grown.terms.mechanism.layout, spec.privacy, grown.terms.honest
    promise = (privacy.bound, privacy.delta, honest, privacy.local_epsilon_max)
    symbol = EventSymbol.calibrated(KeyedMeans(layout, rate=0.01), *promise)
    return replace(grown, terms=replace(grown.terms, mechanism=symbol))


def grown_slope(policy: Any, _: Spec) -> Any:
    """A trial of which the first of two slopes is known."""
    return replace(policy, learned=(LearnedSlope(0.7, 0.45),))


def grown_slopes(policy: Any, _: Spec) -> Any:
    """A trial of which both slopes are known: its rounds ask for no number any more."""
    mechanism = CellTriples(policy.terms.mechanism.layout, policy.terms.mechanism.scale)
    terms, learned = replace(policy.terms, mechanism=mechanism), (LearnedSlope(-1.5, 0.45), LearnedSlope(0.3, 1.0))
    return replace(policy, terms=terms, learned=learned)


def grown_linear(policy: Any, spec: Spec) -> Any:
    """Fill in estimates of arms of a later round; a policy without an own design gets a random one."""
    rng = np.random.default_rng(8)
    arms, d = policy.means.shape
    factors = np.tril(rng.normal(0.0, 0.3, (arms, d, d)))
    means, whitening = rng.normal(0.2, 0.3, (arms, d)), np.eye(d) + np.triu(rng.normal(0, 0.2, (d, d)), 1)
    return replace(policy, means=means, factors=factors, whitening=whitening, telling=whitening.T.copy() * 0.6)


def grown_additive(policy: Any, spec: AdditiveSpec) -> Any:
    """Fill in draws and means of a later round, and questions that are asked often, seldom and never."""
    rng, (arms, terms) = np.random.default_rng(8), policy.means.shape
    draws = np.rint(rng.normal(0, 600, (32, arms, terms))).astype(np.int16)
    means = np.rint(rng.normal(0, 900, (arms, terms)) + 3000 * (np.arange(terms) == 0)).astype(np.int16)
    shares = rng.dirichlet(np.full(policy.questions.count, 0.7))
    shares[3] = 0.0
    edges = np.rint((1 << 16) * np.cumsum(shares / shares.sum())[:-1]).astype(np.uint32)
    grown = replace(policy, draws=draws, means=means, edges=edges)
    if policy.plan:
        return _with_plan(grown, rng)
    if not isinstance(policy.terms.mechanism, NamedSymbol):
        return grown
    mechanism = msgspec.structs.replace(policy.terms.mechanism, layout=spec.make_question(policy.seed, edges).layout)
    return replace(grown, terms=replace(policy.terms, mechanism=mechanism))


def _with_plan(policy: Any, rng: np.random.Generator) -> Any:
    """Coins that give a third of people an arm, and ask about features in cells that are merged in several ways."""
    questions, (_, features) = policy.questions, policy.plan.edges.shape
    edges = np.sort(rng.integers(0, 1 << 16, (2, features)), axis=1).astype(np.uint32)
    resolutions = [rng.choice(np.flatnonzero(questions.features[1:] == place) + 1) for place in range(features)]
    plan = replace(policy.plan, given=21_001, edges=edges, resolutions=np.array(resolutions))
    if not policy.terms.batch_size:
        return replace(policy, plan=replace(plan, given=0))
    mechanism = msgspec.structs.replace(policy.terms.mechanism, layout=plan.layout(questions))
    return replace(policy, plan=plan, terms=replace(policy.terms, mechanism=mechanism))
