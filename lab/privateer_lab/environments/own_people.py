"""User-defined environments: a Python class with ``contexts``, ``means`` and, for numeric rewards, ``rewards``.

A spec's file cannot name a class, since reading a spec from elsewhere would run its code.
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
_N_TRIAL_PARTICIPANTS: Final = 16


class OwnSection(EnvironmentSection):
    """A population that is a user's class."""

    name: Literal["own"]
    # ``module:Class``, whose module is found from the working directory; a class, which is called with the spec; or an
    # object with its methods
    people: Any

    def environment(self, spec: ArmsSpec, _seed: int) -> Environment:
        """Make the environment, and try its methods on a few participants."""
        source = _import_class(self.people) if isinstance(self.people, str) else self.people
        if isinstance(source, type):
            source = _call("the class", source, spec)
        if isinstance(source, Environment):
            return source
        environment = OwnPeople(source, spec)
        environment.means(environment.contexts(0, _N_TRIAL_PARTICIPANTS, np.random.default_rng(0)))
        return environment


def own_population(source: Any) -> dict[str, Any]:
    """Return the ``[population]`` of a user's class or object, as `OwnSection` takes it."""
    return {"name": OWN, "people": source}


def _import_class(path: str) -> Any:
    """Import module:Class, with the working folder on the path; refuse what is missing or fails."""
    module, _, name = path.partition(":")
    folder = os.getcwd()
    if folder not in sys.path:  # of a command installed in another folder
        sys.path.insert(0, folder)
    try:
        imported = import_module(module)
    except ModuleNotFoundError as error:
        remedy = "run this in the folder that has the module, or install it"
        raise SpecError(f"no module is named {error.name!r}", field=_FIELD, remedy=remedy) from None
    except Exception as error:
        raise _call_error(f"the module {module!r}", error) from None
    if not hasattr(imported, name):
        raise SpecError(f"the module {module!r} has no {name!r}", field=_FIELD, remedy="write module:Class")
    return getattr(imported, name)


def _call(label: str, function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a user's function; refuse the function, by its label, if it raises an error."""
    try:
        return function(*arguments)
    except Exception as error:
        raise _call_error(label, error) from None


def _call_error(label: str, error: Exception) -> SpecError:
    """Make an error that names the failed line of the user's code."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    detail = f"{label} raised {type(error).__name__}: {error}"
    return SpecError(detail, field=_FIELD, remedy=f"see line {frame.lineno} of {Path(frame.filename).name}")


class OwnPeople(Environment):
    """Environment of an object with ``contexts``, ``means`` and, for numbers, ``rewards``, which are checked."""

    def __init__(self, source: Any, spec: ArmsSpec) -> None:
        for method in ("contexts", "means"):
            if not callable(getattr(source, method, None)):
                remedy = "give it contexts(people, rng), means(contexts) and rewards(contexts, arms, rng)"
                raise SpecError(f"the class has no method {method!r}", field=_FIELD, remedy=remedy)
        if spec.reward.kind == "numeric" and not callable(getattr(source, "rewards", None)):
            detail = "the class has no method 'rewards', and the rewards of the spec are numbers"
            raise SpecError(detail, field=_FIELD, remedy="give it rewards(contexts, arms, rng)")
        self._source, self._spec = source, spec

    @override
    def contexts(self, n_previous: int, n_participants: int, rng: np.random.Generator) -> Array:
        array = self._call_checked("contexts", (n_participants, None), n_participants, rng)
        if array.shape[1] < len(self._spec.features):
            detail = f"contexts must have {len(self._spec.features)} columns, one a feature, and has {array.shape[1]}"
            raise SpecError(detail, field=_FIELD, remedy="return the features in the spec's order")
        for values, (name, feature) in zip(array.T, self._spec.features.items(), strict=False):
            if np.isnan(values).any() and not feature.missing:
                remedy = "give everybody a value, or set missing = true for the feature in the spec"
                raise SpecError(f"contexts has people without {name!r}", field=_FIELD, remedy=remedy)
        return array

    @override
    def means(self, contexts: Array) -> Array:
        means = self._call_checked("means", (len(contexts), self._spec.arm_count), contexts)
        low, high = self._spec.reward.low, self._spec.reward.high
        if not ((means >= low) & (means <= high)).all():
            detail = f"means must be from reward.low = {low:g} to reward.high = {high:g}"
            raise SpecError(detail, field=_FIELD, remedy="return the expected reward of every arm, in its own unit")
        return means

    @override
    def rewards(self, contexts: Array, decisions: Any, rng: np.random.Generator) -> Array:
        if callable(getattr(self._source, "rewards", None)):
            return self._call_checked("rewards", (len(contexts),), contexts, decisions.arms, rng)
        low, high = self._spec.reward.low, self._spec.reward.high
        means = self.means(contexts)[np.arange(len(contexts)), decisions.arms]
        return np.where(rng.random(len(means)) * (high - low) < means - low, high, low)

    def _call_checked(self, method: str, shape: tuple[int | None, ...], *arguments: Any) -> Array:
        """Call a method, and return its value as numbers of this shape."""
        returned = _call(method, getattr(self._source, method), *arguments)
        try:
            array = np.asarray(returned, np.float64)
        except (TypeError, ValueError):
            remedy = "return levels by their place in the spec, yes as 1, and NaN where a value is missing"
            raise SpecError(f"{method} returned something else than numbers", field=_FIELD, remedy=remedy) from None
        pairs = zip(shape, array.shape, strict=False)
        is_wrong = array.ndim != len(shape) or any(expected not in (None, actual) for expected, actual in pairs)
        if is_wrong or (method != "contexts" and not np.isfinite(array).all()):
            dimensions = ", ".join("columns" if size is None else f"{size:,}" for size in shape)
            detail = f"{method} must be finite numbers of shape ({dimensions}), and has {array.shape}"
            raise SpecError(detail, field=_FIELD, remedy="return an array of that shape")
        return array
