"""A log of choices: who got which arm with which probability, and what came of it; and the policy that it is to judge.

Such a log has contexts in the clear. Nothing here makes it private: it is for data that a team already has.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NoReturn, TypeAlias

import numpy as np
from numpy.typing import NDArray

from privateer_core.errors import InputError, SpecError
from privateer_lab.notebook.data_frames import Array, Columns, columns_of, contexts_of, numbered, numbers, texts
from privateer_lab.notebook.data_frames import column as column_of
from privateer_lab.notebook.policies import LoadedPolicy
from privateer_lab.simulation.devices import scaled

Decider: TypeAlias = LoadedPolicy | str | int | Callable[[Columns], Any]
"""A policy, the name of an arm, or a function from columns of contexts to names or probabilities of arms.

A whole number is the name of an arm, too, where the column of arms has numbers; it is never a place among them.
"""
_FUNCTION: Final = "return a name for each row, or a dict of arms with a probability for each row"
_DUST: Final = 1e-6
ARMS_MAX: Final = 1000
_CELLS_MAX: Final = 100_000_000
"""Most rows times arms: so many numbers of the shares and of what is expected fit into 2 GB."""


class _Context(Columns):
    """The columns that a function may look at; asking for another one says how to give it."""

    def __missing__(self, name: str) -> NoReturn:
        there = f"; it has {', '.join(self)}" if self else ""
        remedy = f"name the columns that the policy needs, as in context=[{name!r}]{there}"
        raise InputError(f"has no column {name!r}, for which the policy asks", field="context", remedy=remedy)


@dataclass(frozen=True)
class ChoiceLog:
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
) -> ChoiceLog:
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
        detail = f"must have at most {ARMS_MAX:,} arms"
        raise InputError(detail, field=action, remedy="name the column of arms")
    rows = len(next(iter(columns.values())))
    if rows * len(names) > _CELLS_MAX:
        detail = f"has {rows:,} rows for {len(names):,} arms, too many to keep what is expected of each"
        raise InputError(detail, field="frame", remedy=f"draw {_CELLS_MAX // len(names):,} of the rows at random")
    for name in context:
        column_of(columns, name)
    chosen = numbered(columns, action, names)
    return ChoiceLog(
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
    if arms is None and isinstance(policy, LoadedPolicy):
        return policy.arms
    if arms is None:
        arms = sorted(set(texts(columns_of(frame), action)))
    name, names = arm_named(policy), ", ".join(arms)
    if name is None or name in arms:
        return arms
    if isinstance(policy, str):
        detail, remedy = f"there is no arm of this name among {names}", "name one of them, or list all in arms"
    else:
        detail = f"a number is the arm of that name, and there is none among {names}"
        remedy = f"write the arm's name, as in {arms[0]!r}"
    raise SpecError(detail, field="policy", remedy=remedy)


def arm_named(policy: Any) -> str | None:
    """Return the name of the arm that a policy is; None if it is no arm."""
    if isinstance(policy, str):
        return policy
    whole = isinstance(policy, int | np.integer) and not isinstance(policy, bool)
    return str(int(policy)) if whole else None


def shares_of(policy: Decider, log: ChoiceLog) -> Array:
    """Return the probability with which a policy chooses each arm for each row, (n, arms).

    Raises
    ------
    InputError, SpecError
        If the policy needs a column that is not there, or returns something else.
    """
    if (name := arm_named(policy)) is not None:
        return np.tile(np.array(log.arms) == name, (len(log), 1)).astype(np.float64)
    if isinstance(policy, LoadedPolicy):
        found = policy.at(scaled(contexts_of(log.columns, policy.spec), policy.spec))
        return _in_order(found, policy.arms, log.arms)
    if not callable(policy):
        remedy = "give a policy of lab.policy or lab.simulate, a function, or the name of an arm as text"
        raise SpecError("is no policy", field="policy", remedy=remedy)
    return _returned(_asked(policy, log), log)


def _asked(policy: Callable[[Columns], Any], log: ChoiceLog) -> Any:
    """Return what a function says of the columns of contexts."""
    try:
        return policy(_Context({name: log.columns[name] for name in log.context}))
    except ValueError as error:
        if "truth value" not in str(error):  # numpy's words for a column in the place of one value
            raise
        detail = "treats a column as if it were one person's value"
        raise SpecError(detail, field="policy", remedy="decide for all rows at once, as with numpy.where") from error


def _in_order(found: Array, names: Sequence[str], arms: Sequence[str]) -> Array:
    if missing := sorted(set(names) - set(arms)):
        remedy = "list all arms of the policy in arms, or leave arms out"
        raise SpecError(f"lacks arms of the policy: {', '.join(missing)}", field="arms", remedy=remedy)
    ordered = np.zeros((len(found), len(arms)))
    ordered[:, [list(arms).index(name) for name in names]] = found
    return ordered


def _returned(answer: Any, log: ChoiceLog) -> Array:
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
    places = numbered({"policy": names}, "policy", log.arms, "return names of the log's arms, or list all in arms")
    return np.asarray(places[:, None] == np.arange(len(log.arms)), np.float64)
