"""Choice of a draft's algorithm, features and arms: those with the highest reward in simulated runs."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from privateer_core.errors import SpecError
from privateer_core.spec.arms import ArmsSpec
from privateer_lab.drafting.logged_people import LoggedPeople
from privateer_lab.environments import environment_for
from privateer_lab.planning.algorithm_choice import AlgorithmChoice, QuantileVariant, choose_algorithm
from privateer_lab.planning.expectation.partial_runs import restrict_to
from privateer_lab.planning.feature_sets.afforded import build_affordable_specs, select_noiseless, with_features
from privateer_lab.planning.other_algorithms import build_variants, with_own_rounds

Tables = Mapping[str, Any]


def choose_for_log(logged: LoggedPeople, tables: Tables, cut_tables: Tables) -> AlgorithmChoice | SpecError:
    """Choose the algorithm, features and arms with the highest reward on a log's people, with or without cut points."""
    names = logged.feature_names
    tables, cut_tables = (with_features(table, names) if logged.suspects else table for table in (tables, cut_tables))
    specs = build_variants(tables, own_rounds=True)
    full_spec = max(specs.values(), key=lambda spec: len(spec.features))
    environment = restrict_to(logged.environment, logged.spec, full_spec)
    # Without noise an uninformative feature costs next to nothing.
    is_private = logged.spec.privacy.trust.promises
    # Two tests, of the model and of each feature, exclude chance findings.
    candidates = build_affordable_specs(tables, logged.outcomes, differ=logged.has_interactions) if is_private else None
    make_variant = _make_cut_variant(tables, cut_tables)
    has_gain = is_private and logged.has_held_out_gain
    choice = choose_algorithm(specs, lambda _spec, _seed: environment, make_variant, candidates, has_gain=has_gain)
    if isinstance(choice, SpecError):
        return choice
    choice = replace(choice, suspects=logged.suspects)
    if choice.kept_features is None:
        return choice
    return replace(choice, n_without_privacy=len(select_noiseless(logged.outcomes)) if logged.has_interactions else 0)


def choose_for_classes(path: Path, tables: Tables, cut_tables: Tables) -> AlgorithmChoice | SpecError:
    """Choose the algorithm, features and arms with the highest reward on the labelled participants of a file."""
    source = {"path": str(path.resolve())}
    plain, cut = (dict(table) | {"population": dict(table["population"]) | source} for table in (tables, cut_tables))
    return choose_algorithm(build_variants(plain, own_rounds=True), environment_for, _make_cut_variant(plain, cut))


def _make_cut_variant(tables: Tables, cut_tables: Tables) -> QuantileVariant:
    """Make the function that gives a spec cut points at quantiles; it returns None if nothing changes."""

    def with_quantiles(spec: ArmsSpec) -> ArmsSpec | None:
        experiment = {"experiment": dict(tables["experiment"]) | {"arms": list(spec.options)}}
        drafts = (dict(table) | experiment for table in (tables, cut_tables))
        plain, changed = (with_features(draft, list(spec.features)) for draft in drafts)
        return with_own_rounds(changed, spec.algorithm.name) if changed != plain else None

    return with_quantiles
