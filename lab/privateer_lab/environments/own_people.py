"""People of one's own: a Python class with ``contexts``, ``means`` and, where rewards are numbers, ``rewards``.

A spec's file cannot name one, since whoever reads a spec from elsewhere would run its code.
"""

import os
import sys
import traceback
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
from typing_extensions import override

from privateer_core.errors import SpecError
from privateer_core.spec.arms import ArmsSpec
from privateer_lab.environments.environment import Array, Environment, EnvironmentSection

OWN: Final = "own"
_FIELD: Final = "--population"
_METHODS: Final = ("contexts", "means")
_TRIED: Final = 16


class OwnSection(EnvironmentSection):
    """People of a class."""

    name: Literal["own"]
    # ``module:Class``, whose module is found from the working directory; a class, which is called with the spec; or an
    # object with its methods
    people: Any

    def environment(self, spec: ArmsSpec, _seed: int) -> Environment:
        """Make the people, and try some of them."""
        people = _imported(self.people) if isinstance(self.people, str) else self.people
        if isinstance(people, type):
            people = _called("the class", people, spec)
        if isinstance(people, Environment):
            return people
        made = OwnPeople(people, spec)
        rng = np.random.default_rng(0)
        some = made.contexts(0, _TRIED, rng)
        made.means(some)
        return made


def own_population(people: Any) -> dict[str, Any]:
    """Return the ``[population]`` of people of one's own, as `OwnSection` takes them."""
    return {"name": OWN, "people": people}


def _imported(path: str) -> Any:
    """Return the class that ``module:Class`` names."""
    module, _, name = path.partition(":")
    here = os.getcwd()
    if here not in sys.path:  # of a command installed in another folder
        sys.path.insert(0, here)
    try:
        found = import_module(module)
    except ModuleNotFoundError as error:
        remedy = "run this in the folder that has the module, or install it"
        raise SpecError(f"no module is named {error.name!r}", field=_FIELD, remedy=remedy) from None
    except Exception as error:
        raise _failed(f"the module {module!r}", error) from None
    if not hasattr(found, name):
        detail = f"the module {module!r} has no {name!r}"
        raise SpecError(detail, field=_FIELD, remedy="write module:Class")
    return getattr(found, name)


def _called(what: str, function: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return function(*arguments)
    except Exception as error:
        raise _failed(what, error) from None


def _failed(what: str, error: Exception) -> SpecError:
    """Name the line of somebody else's code that failed."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    detail = f"{what} raised {type(error).__name__}: {error}"
    return SpecError(detail, field=_FIELD, remedy=f"see line {place.lineno} of {Path(place.filename).name}")


class OwnPeople(Environment):
    """An object's people, whose methods are checked when they answer.

    people: has ``contexts(people, rng)``, ``means(contexts)`` and, if rewards are no coins, ``rewards(contexts, arms,
        rng)``.
    spec: the experiment's.
    """

    def __init__(self, people: Any, spec: ArmsSpec) -> None:
        for method in _METHODS:
            if not callable(getattr(people, method, None)):
                remedy = "give it contexts(people, rng), means(contexts) and rewards(contexts, arms, rng)"
                raise SpecError(f"the class has no method {method!r}", field=_FIELD, remedy=remedy)
        if spec.reward.kind == "numeric" and not callable(getattr(people, "rewards", None)):
            detail = "the class has no method 'rewards', and the rewards of the spec are numbers"
            raise SpecError(detail, field=_FIELD, remedy="give it rewards(contexts, arms, rng)")
        self._people, self._spec = people, spec

    @override
    def contexts(self, seen: int, people: int, rng: np.random.Generator) -> Array:
        found = self._checked("contexts", (people, None), people, rng)
        if found.shape[1] < len(self._spec.features):
            detail = f"contexts must have {len(self._spec.features)} columns, one a feature, and has {found.shape[1]}"
            raise SpecError(detail, field=_FIELD, remedy="return the features in the spec's order")
        for values, (name, feature) in zip(found.T, self._spec.features.items(), strict=False):
            if np.isnan(values).any() and not feature.missing:
                remedy = "give everybody a value, or set missing = true for the feature in the spec"
                raise SpecError(f"contexts has people without {name!r}", field=_FIELD, remedy=remedy)
        return found

    @override
    def means(self, contexts: Array) -> Array:
        found = self._checked("means", (len(contexts), self._spec.arm_count), contexts)
        low, high = self._spec.reward.low, self._spec.reward.high
        if not ((found >= low) & (found <= high)).all():
            detail = f"means must be from reward.low = {low:g} to reward.high = {high:g}"
            raise SpecError(detail, field=_FIELD, remedy="return the expected reward of every arm, in its own unit")
        return found

    @override
    def rewards(self, contexts: Array, decisions: Any, rng: np.random.Generator) -> Array:
        if callable(getattr(self._people, "rewards", None)):
            return self._checked("rewards", (len(contexts),), contexts, decisions.arms, rng)
        low, high = self._spec.reward.low, self._spec.reward.high
        means = self.means(contexts)[np.arange(len(contexts)), decisions.arms]
        return np.where(rng.random(len(means)) * (high - low) < means - low, high, low)

    def _checked(self, method: str, shape: tuple[int | None, ...], *arguments: Any) -> Array:
        """Return what a method returns, as numbers of this shape."""
        answer = _called(method, getattr(self._people, method), *arguments)
        try:
            found = np.asarray(answer, np.float64)
        except (TypeError, ValueError):
            remedy = "return levels by their place in the spec, yes as 1, and NaN where a value is missing"
            raise SpecError(f"{method} returned something else than numbers", field=_FIELD, remedy=remedy) from None
        wrong = len(found.shape) != len(shape) or any(
            wanted not in (None, is_there) for wanted, is_there in zip(shape, found.shape, strict=True)
        )
        if wrong or (method != "contexts" and not np.isfinite(found).all()):
            sides = ", ".join("columns" if one is None else f"{one:,}" for one in shape)
            detail = f"{method} must be finite numbers of shape ({sides}), and has {found.shape}"
            raise SpecError(detail, field=_FIELD, remedy="return an array of that shape")
        return found
