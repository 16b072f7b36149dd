"""What a draft keeps of what its data offer: the algorithm, the features and the options that earn most."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from privateer_core.errors import SpecError
from privateer_core.spec.arms import ArmsSpec
from privateer_lab.drafting.logged_people import LoggedPeople
from privateer_lab.environments import environment_for
from privateer_lab.planning.algorithm_choice import AlgorithmChoice, Drawn, choice_of
from privateer_lab.planning.feature_sets.afforded import affordable, unnoised, with_some
from privateer_lab.planning.other_algorithms import every_algorithm, with_own_rounds

Tables = Mapping[str, Any]


def choice_for_log(people: LoggedPeople, tables: Tables, cut: Tables) -> AlgorithmChoice | SpecError:
    """Return what earns most on the people of a log.

    tables, cut: those of the draft, and the same with cut points of numbers from the data.
    """
    known, specs = people.people, every_algorithm(tables, own_rounds=True)
    # Without noise a feature that tells nothing costs next to nothing.
    pays = people.spec.privacy.trust.promises
    # Two tests, of the model and of each feature, keep what is chance out.
    kept = affordable(tables, people.outcomes, differ=people.differs) if pays else None
    found = choice_of(specs, lambda _spec, _seed: known, _drawn(tables, cut), kept)
    if isinstance(found, SpecError) or found.kept is None:
        return found
    return replace(found, unnoised=unnoised(tables, people.outcomes) if people.differs else 0)


def choice_for_classes(path: Path, tables: Tables, cut: Tables) -> AlgorithmChoice | SpecError:
    """Return what earns most on the people of a file who have a class."""
    people = {"path": str(path.resolve())}
    tables, cut = (dict(one) | {"population": dict(one["population"]) | people} for one in (tables, cut))
    return choice_of(every_algorithm(tables, own_rounds=True), environment_for, _drawn(tables, cut))


def _drawn(tables: Tables, cut: Tables) -> Drawn:
    def drawn(spec: ArmsSpec) -> ArmsSpec | None:
        some = {"experiment": dict(tables["experiment"]) | {"arms": list(spec.options)}}
        usual, changed = (with_some(dict(one) | some, list(spec.features)) for one in (tables, cut))
        return with_own_rounds(changed, spec.algorithm.name) if changed != usual else None

    return drawn
