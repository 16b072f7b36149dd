"""A log of choices: who got which arm with which probability, and what came of it; and the policy that it is to judge.

Such a log has contexts in the clear. Nothing here makes it private: it is for data that a team already has.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, NoReturn, TypeAlias

import numpy as np
from numpy.typing import NDArray

from privateer_core.errors import InputError, SpecError
from privateer_core.spec.spec import Spec
from privateer_lab.clusters import few_clusters
from privateer_lab.environments.file_contexts import contexts_of
from privateer_lab.notebook.policies import Array, LoadedPolicy
from privateer_lab.simulation.devices import scaled
from privateer_lab.tables import TABLE, shortened
from privateer_lab.tables.data_table import DataTable, TableRows, check_named
from privateer_lab.tables.log_rows import complete_rows, rewards_of

Columns: TypeAlias = dict[str, NDArray[Any]]
Decider: TypeAlias = LoadedPolicy | str | int | Callable[[Columns], Any]
"""A policy, the name of an arm, or a function from columns of contexts to names or probabilities of arms.

A whole number is the name of an arm, too, where the column of arms has numbers; it is never a place among them.
"""
Unit: TypeAlias = Literal["people", "clusters"]
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
    table
        All rows of the frame.
    kept
        Shape (n,), the rows that have an arm and a reward.
    columns
        Those that the policy may look at, (n,) each.
    arms
        Names of the arms.
    chosen
        Shape (n,): the place of each row's arm.
    rewards
        Shape (n,).
    propensities
        Shape (n,), in (0, 1]: the probability with which each row's arm was chosen for its person.
    units
        Shape (n,): whose each row is, from 0 on; each is somebody else's if no column says whose.
    unit
        What a column says rows depend on each other by; None: nothing.
    remarks
        What was left out, in sentences.
    """

    table: DataTable
    kept: NDArray[np.int64]
    columns: Columns
    arms: tuple[str, ...]
    chosen: NDArray[np.int64]
    rewards: Array
    propensities: Array
    units: NDArray[np.int64]
    unit: Unit | None
    remarks: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.chosen)

    def contexts(self, spec: Spec) -> Array:
        """Return the features of a spec as devices read them, (n, features)."""
        return contexts_of(self.table, spec)[self.kept]


def read_log(
    table: DataTable,
    *,
    context: Sequence[str],
    action: str,
    reward: str,
    propensity: str | float,
    arms: Sequence[str],
    person: str | None = None,
    cluster: str | None = None,
) -> ChoiceLog:
    """Read a log; rows without an arm, a reward or a propensity are left out.

    Raises
    ------
    SpecError
        Naming the column, its constraint and the remedy.
    """
    if isinstance(context, str):
        raise SpecError("must be a list of names of columns", field="context", remedy=f"write context=[{context!r}]")
    if person and cluster:
        remedy = "leave --person out: a cluster has all rows of its people"
        raise SpecError("is named beside --person, and rows are either's", field="--cluster", remedy=remedy)
    by: tuple[Unit, str] | None = ("people", person) if person else ("clusters", cluster) if cluster else None
    needed = [action, reward, *(one for one in (propensity, person, cluster) if isinstance(one, str))]
    check_named([*needed, *context], table.header)
    whole, remarks = table.read(needed), list[str]()
    if whole.kept < 2:
        raise SpecError("has one row", field=TABLE, remedy="give a log of at least two people")
    if len(arms) > ARMS_MAX:
        detail = f"must have at most {ARMS_MAX:,} arms"
        raise SpecError(detail, field=action, remedy="name the column of arms")
    if whole.kept * len(arms) > _CELLS_MAX:
        detail = f"has {whole.kept:,} rows for {len(arms):,} arms, too many to keep what is expected of each"
        raise SpecError(detail, field=TABLE, remedy=f"draw {_CELLS_MAX // len(arms):,} of the rows at random")
    kept = np.flatnonzero(np.all([whole.column(name).places >= 0 for name in needed], axis=0))
    rows = complete_rows(whole, needed, remarks)
    units = np.arange(rows.kept)
    if by:
        units = np.unique(rows.column(by[1]).places, return_inverse=True)[1]
        if not units.any():
            raise SpecError("has one value", field=by[1], remedy=f"name a column of at least two {by[0]}")
    if cluster:
        remarks += few_clusters(int(units.max()) + 1, shortened(cluster))
    return ChoiceLog(
        table,
        kept,
        {name: values[kept] for name, values in table.arrays(context).items()},
        tuple(arms),
        _places(rows.column(action).texts, action, arms, "correct it, or leave such rows out"),
        rewards_of(rows.column(reward), must_vary=False),
        _propensities(rows, propensity),
        units,
        by and by[0],
        tuple(remarks),
    )


def _places(texts: NDArray[Any], name: str, arms: Sequence[str], remedy: str) -> NDArray[np.int64]:
    """Return the place of each row's arm among those known, (n,)."""
    place_of = {arm: place for place, arm in enumerate(arms)}
    places = np.array([place_of.get(text, -1) for text in texts.tolist()], np.int64)
    if (places < 0).any():
        row = int((places < 0).argmax())
        detail = f"row {row:,}, counted from 0, has an arm that is not one of {', '.join(arms)}"
        raise SpecError(detail, field=name, remedy=remedy)
    return places


def _propensities(rows: TableRows, propensity: str | float) -> Array:
    if isinstance(propensity, str):
        column, field = rows.column(propensity), propensity
        shares = column.quantities[column.places]
    else:
        shares, field = np.full(rows.kept, float(propensity)), "propensity"
    wrong = ~((shares > 0) & (shares <= 1))
    if wrong.any():
        detail = f"must be above 0 and at most 1: row {int(wrong.argmax()):,}, counted from 0, is not"
        remedy = "log the probability with which the row's arm was chosen"
        raise SpecError(detail, field=field, remedy=remedy)
    return shares


def known_arms(policy: Decider | None, arms: Sequence[str] | None, table: DataTable, action: str) -> Sequence[str]:
    """Return the names of all arms: those given, those of the policy, or those of the log with the one named.

    Raises
    ------
    SpecError
        If the arm named is unknown.
    """
    if arms is None and isinstance(policy, LoadedPolicy):
        return policy.arms
    if arms is None:
        check_named([action], table.header)
        arms = sorted(table.read([action]).column(action).counts)
        arms = sorted(arms, key=int) if all(map(str.isdecimal, arms)) else arms
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
        found = policy.at(scaled(log.contexts(policy.spec), policy.spec))
        return _in_order(found, policy.arms, log.arms)
    if not callable(policy):
        remedy = "give a policy of lab.policy or lab.simulate, a function, or the name of an arm as text"
        raise SpecError("is no policy", field="policy", remedy=remedy)
    return _returned(_asked(policy, log), log)


def _asked(policy: Callable[[Columns], Any], log: ChoiceLog) -> Any:
    """Return what a function says of the columns of contexts."""
    try:
        return policy(_Context(log.columns))
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
    texts = DataTable({"policy": names}).read().column("policy").texts
    places = _places(texts, "policy", log.arms, "return names of the log's arms, or list all in arms")
    return np.asarray(places[:, None] == np.arange(len(log.arms)), np.float64)
