"""A log of choices: who got which arm with which probability, and what came of it; and the policy that it is to judge.

Such a log has contexts in the clear. Nothing here makes it private: it is for data that a team already has.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from privateer.arms_spec import ARMS_MAX
from privateer.errors import InputError, SpecError
from privateer_lab.devices import scaled
from privateer_lab.notebook.columns import Array, Columns, columns_of, contexts_of, numbered, numbers, texts
from privateer_lab.notebook.columns import column as column_of
from privateer_lab.notebook.policies import Policy

Decider: TypeAlias = Policy | str | Callable[[Columns], Any]
"""A policy, the name of an arm, or a function from columns of contexts to names or probabilities of arms."""
_FUNCTION: Final = "return a name for each row, or a dict of arms with a probability for each row"
_DUST: Final = 1e-6


@dataclass(frozen=True)
class Log:
    """The rows of a log.

    Attributes
    ----------
    columns
        All columns of the frame.
    context
        Names of those that the policy may look at.
    arms
        Names of the arms.
    chosen
        Shape (n,): the place of each row's arm.
    rewards
        Shape (n,).
    propensities
        Shape (n,), in (0, 1]: the probability with which each row's arm was chosen for its person.
    """

    columns: Columns
    context: tuple[str, ...]
    arms: tuple[str, ...]
    chosen: NDArray[np.int64]
    rewards: Array
    propensities: Array

    def __len__(self) -> int:
        return len(self.chosen)


def read_log(
    frame: Any,
    *,
    context: Sequence[str],
    action: str,
    reward: str,
    propensity: str | float,
    arms: Sequence[str] | None,
) -> Log:
    """Read the log in a data frame.

    Raises
    ------
    InputError
        Naming the column, its constraint and the remedy.
    """
    if isinstance(context, str):
        raise SpecError("must be a list of names of columns", field="context", remedy=f"write context=[{context!r}]")
    columns = columns_of(frame)
    if len(next(iter(columns.values()))) < 2:
        raise InputError("has one row", field="frame", remedy="give a log of at least two people")
    names = tuple(arms) if arms else tuple(sorted(set(texts(columns, action))))
    if len(names) > ARMS_MAX:
        detail = f"must have at most {ARMS_MAX} arms"
        raise InputError(detail, field=action, remedy="name the column of arms")
    for name in context:
        column_of(columns, name)
    chosen = numbered(columns, action, names)
    return Log(
        columns,
        tuple(context),
        names,
        chosen,
        numbers(columns, reward),
        _propensities(columns, propensity, len(chosen)),
    )


def _propensities(columns: Columns, propensity: str | float, rows: int) -> Array:
    if isinstance(propensity, str):
        found, field = numbers(columns, propensity), propensity
    else:
        found, field = np.full(rows, float(propensity)), "propensity"
    wrong = ~((found > 0) & (found <= 1))
    if wrong.any():
        detail = f"must be above 0 and at most 1: row {int(wrong.argmax()):,}, counted from 0, is not"
        remedy = "log the probability with which the row's arm was chosen"
        raise InputError(detail, field=field, remedy=remedy)
    return found


def known_arms(policy: Decider, arms: Sequence[str] | None, frame: Any, action: str) -> Sequence[str]:
    """Return the names of all arms: those given, those of the policy, or those of the log with the one named.

    Raises
    ------
    SpecError
        If the arm named is unknown.
    """
    if arms is None and isinstance(policy, Policy):
        return policy.arms
    if arms is None:
        arms = sorted(set(texts(columns_of(frame), action)))
    if isinstance(policy, str) and policy not in arms:
        detail = f"there is no arm of this name among {', '.join(arms)}"
        raise SpecError(detail, field="policy", remedy="name one of them, or list all in arms")
    return arms


def shares_of(policy: Decider, log: Log) -> Array:
    """Return the probability with which a policy chooses each arm for each row, (n, arms).

    Raises
    ------
    InputError, SpecError
        If the policy needs a column that is not there, or returns something else.
    """
    if isinstance(policy, str):
        return np.tile(np.array(log.arms) == policy, (len(log), 1)).astype(np.float64)
    if isinstance(policy, Policy):
        found = policy.at(scaled(contexts_of(log.columns, policy.spec), policy.spec))
        return _in_order(found, policy.arms, log.arms)
    if not callable(policy):
        remedy = "give a policy of lab.policy or lab.simulate, a function, or the name of an arm"
        raise SpecError("is no policy", field="policy", remedy=remedy)
    return _returned(policy({name: log.columns[name] for name in log.context}), log)


def _in_order(found: Array, names: Sequence[str], arms: Sequence[str]) -> Array:
    if missing := sorted(set(names) - set(arms)):
        remedy = "list all arms of the policy in arms, or leave arms out"
        raise SpecError(f"lacks arms of the policy: {', '.join(missing)}", field="arms", remedy=remedy)
    ordered = np.zeros((len(found), len(arms)))
    ordered[:, [list(arms).index(name) for name in names]] = found
    return ordered


def _returned(answer: Any, log: Log) -> Array:
    """Read what a function returned."""
    if isinstance(answer, Mapping):
        if unknown := sorted(set(map(str, answer)) - set(log.arms)):
            raise SpecError(
                f"gives arms that the log does not have: {', '.join(unknown)}", field="policy", remedy=_FUNCTION
            )
        try:
            given = {
                str(name): np.broadcast_to(np.asarray(share, np.float64), len(log)) for name, share in answer.items()
            }
        except (TypeError, ValueError):
            raise SpecError("gives something else than probabilities", field="policy", remedy=_FUNCTION) from None
        found = np.stack([given.get(name, np.zeros(len(log))) for name in log.arms], axis=1)
        if not ((found >= 0).all() and (np.abs(found.sum(axis=1) - 1) < _DUST).all()):
            detail = "gives probabilities that are negative or do not sum to 1"
            raise SpecError(detail, field="policy", remedy=_FUNCTION)
        return found
    names = np.asarray(answer)
    if names.shape != (len(log),):
        detail = f"must answer for each of the {len(log):,} rows"
        raise SpecError(detail, field="policy", remedy=_FUNCTION)
    places = numbered({"policy": names}, "policy", log.arms)
    return np.asarray(places[:, None] == np.arange(len(log.arms)), np.float64)
