"""Sections of a draft that no column decides: people and rounds, the promise, the algorithm, people with a class."""

from collections.abc import Sequence
from typing import Any, Final

from privateer_core.algorithms import read_spec
from privateer_core.privacy.trust import TRUST
from privateer_core.spec.spec import example_promises
from privateer_lab.drafting.feature_drafts import rounded
from privateer_lab.drafting.toml_values import toml
from privateer_lab.planning.plans import epsilons_of, trust_models

_ROUND: Final = 1000
"""People of a usual first round."""
_ROUNDS: Final = 30
"""Rounds of people who are no crowd to hide in, where a usual round would be a large part of all."""
_SHARE: Final = 0.05
_MEASURING: Final = 1000
"""People who measure a gain, at least: of fewer no shuffled batch is made."""
_SLIPS: Final = 0.1
"""Delta times people, at most: what a promise may miss, over all people together."""
_CROWD: Final = 5000
"""People from whom on a draft has a shuffler: at the same epsilon a report in a crowd tells many times as much."""


def opening(name: str, arms: Sequence[str], rows: int, *, measures: bool) -> list[str]:
    """Return the section of the experiment.

    name, arms: the experiment's name, and its options.
    rows: rows of the table, one a person.
    measures: whether the last people measure what choosing by features gains.
    """
    people = _round_number(rows)
    few, size = (_CROWD, people // _ROUNDS) if measures else (_ROUND, people)
    measured = f"gain_share = {_SHARE:g}  # of the people, the last ones, measure what choosing by context gains"
    return [
        "[experiment]",
        f"name = {toml(name)}",
        f"arms = {toml(list(arms))}",
        f"horizon = {people}  # people who take part",
        *([f"round_size = {max(1, size)}"] if rows < few else []),
        *([measured] if measures and _SHARE * rows >= _MEASURING else []),
        "",
    ]


def _round_number(rows: int) -> int:
    """Return a number of two digits that is no larger: everybody may read it, and one row more is nobody's business."""
    unit = int(10 ** max(0, len(str(rows)) - 2))
    return max(1, rows // unit * unit)


def with_filled_rounds(text: str) -> str:
    """Return a draft whose horizon its rounds fill: a rest below the smallest round would not be asked."""
    while beyond := (spec := read_spec(text)).out_of_reach(spec.cohorts[0], 0):
        people = spec.experiment.horizon
        text = text.replace(f"horizon = {people} ", f"horizon = {people - beyond} ", 1)
    return text


def promise_for(people: int, model: str | None = None, epsilon: float | None = None) -> dict[str, Any]:
    """Return a promise that so many people can have, at epsilon 1 if no other is wanted."""
    crowd, wanted = people >= _CROWD, None if model is None else trust_models(model, tuple(TRUST), "--model")[0]
    promise = next(
        one
        for one in example_promises()
        if (TRUST[one["model"]].shuffled == crowd if wanted is None else one["model"] == wanted)
    )
    promise |= (
        {"epsilon": epsilons_of(1.0 if epsilon is None else epsilon, "--epsilon")[0]} if "epsilon" in promise else {}
    )
    return promise | ({"delta": min(promise["delta"], rounded(_SLIPS / people))} if "delta" in promise else {})


def trusted(promise: dict[str, Any]) -> str:
    """Say whom people have to trust for a promise, why the draft has it, and what would change that."""
    said = f"privacy.model is {toml(promise['model'])}"
    if not TRUST[promise["model"]].shuffled:
        return f"{said}: people trust nobody but their own device. Fewer than {_CROWD:,} are no crowd to hide in."
    alone = next(one["model"] for one in example_promises() if not TRUST[one["model"]].shuffled)
    return (
        f"{said}, since {_CROWD:,} people or more are a crowd to hide in. The promise holds if somebody runs the "
        "shuffler whom the server does not control, and nine in ten reports of a batch are honest; "
        "`privateer account experiment` says what holds if not. "
        f"To have people trust nobody: model = {toml(alone)}, without delta."
    )


def closing(promise: dict[str, Any], fitting: str) -> list[str]:
    """Return the sections that no data decide: a promise, and the algorithm."""
    return [
        "[privacy]  # what you promise to each person: `privateer plan` shows what it costs in rewards",
        *(f"{key} = {toml(value)}" for key, value in promise.items()),
        "",
        algorithm_section(fitting),
    ]


def algorithm_section(name: str) -> str:
    """Return the section that names an algorithm."""
    return f"[algorithm]\nname = {toml(name)}"


def labelled_people(path: str, label: str, classes: list[str], arms: Sequence[str]) -> list[str]:
    """Return the section of people who are a file's rows, whose class in the column ``label`` is their right arm."""
    lines = ["", "[population]  # simulated people: the rows, whose class is the right arm", 'name = "csv"']
    lines += [f"path = {toml(path)}", f"label = {toml(label)}", 'ignore = ["*"]']
    return lines + ([f"classes = {toml(classes)}"] if list(arms) != classes else [])
