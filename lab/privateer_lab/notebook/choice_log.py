"""Choice logs: each participant's context, arm, propensity and reward; and arm probabilities of a policy on a log.

A log has contexts in the clear. This module does not make it private: it is for data that a team already has.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, NoReturn, TypeAlias

import numpy as np
from numpy.typing import NDArray

from privateer_core.errors import InputError, SpecError
from privateer_core.spec.spec import Spec
from privateer_lab.analysis.clusters import few_cluster_warnings
from privateer_lab.environments.files import read_contexts
from privateer_lab.notebook.policies import Array, LoadedPolicy
from privateer_lab.simulation.scores import encode_contexts
from privateer_lab.tables import TABLE_FIELD, shorten
from privateer_lab.tables.data_column import DataColumn
from privateer_lab.tables.data_table import DataTable, TableRows, check_columns_exist
from privateer_lab.tables.log_rows import drop_incomplete_rows, find_indices, read_rewards

Columns: TypeAlias = dict[str, NDArray[Any]]
Decider: TypeAlias = LoadedPolicy | str | int | Callable[[Columns], Any]
"""A policy, the name of an arm, or a function from columns of contexts to names or probabilities of arms.

A whole number is the name of an arm, too, where the column of arms has numbers; it is never an index of an arm.
"""
Unit: TypeAlias = Literal["people", "clusters"]
_REMEDY: Final = "return a name for each row, or a dict of arms with a probability for each row"
_PROBABILITY_TOLERANCE: Final = 1e-6
MAX_ARMS: Final = 1000
_MAX_CELLS: Final = 100_000_000
"""Largest product of rows and arms: arrays of this size for probabilities and expected rewards fit into 2 GB."""


class _Context(Columns):
    """Context columns for a policy function; a missing column raises an error that says how to add it."""

    def __missing__(self, name: str) -> NoReturn:
        available = f"; it has {', '.join(self)}" if self else ""
        remedy = f"name the columns that the policy needs, as in context=[{name!r}]{available}"
        raise InputError(f"has no column {name!r}, for which the policy asks", field="context", remedy=remedy)


@dataclass(frozen=True)
class ChoiceLog:
    """Rows of a choice log."""

    table: DataTable  # all rows of the frame
    row_indices: NDArray[np.int64]  # shape (n,): indices of the rows of the frame that have an arm and a reward
    columns: Columns  # context columns by name, (n,) each
    arms: tuple[str, ...]  # names of the arms
    arm_indices: NDArray[np.int64]  # shape (n,): the index of each row's arm
    rewards: Array  # shape (n,)
    propensities: Array  # shape (n,), in (0, 1]: the probability with which each row's arm was chosen
    units: NDArray[np.int64]  # shape (n,): each row's participant or cluster, from 0 on; by default its own
    unit: Unit | None  # the kind of independent unit that a column names; None if no column does
    remarks: tuple[str, ...]  # sentences about rows that were left out

    def __len__(self) -> int:
        return len(self.arm_indices)

    def contexts(self, spec: Spec) -> Array:
        """Return the features of a spec as devices read them, (n, features)."""
        return read_contexts(self.table, spec)[self.row_indices]


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
    """Read a choice log without the rows that lack an arm, a reward or a propensity."""
    if isinstance(context, str):
        raise SpecError("must be a list of names of columns", field="context", remedy=f"write context=[{context!r}]")
    if person and cluster:
        remedy = "leave --person out: a cluster has all rows of its people"
        raise SpecError("is named beside --person, and rows are either's", field="--cluster", remedy=remedy)
    grouping: tuple[Unit, str] | None = ("people", person) if person else ("clusters", cluster) if cluster else None
    required = [action, reward, *(column for column in (propensity, person, cluster) if isinstance(column, str))]
    check_columns_exist([*required, *context], table.header)
    table_rows, remarks = table.read(required), list[str]()
    if table_rows.n_rows < 2:
        raise SpecError("has one row", field=TABLE_FIELD, remedy="give a log of at least two people")
    if len(arms) > MAX_ARMS:
        detail = f"must have at most {MAX_ARMS:,} arms"
        raise SpecError(detail, field=action, remedy="name the column of arms")
    if table_rows.n_rows * len(arms) > _MAX_CELLS:
        detail = f"has {table_rows.n_rows:,} rows for {len(arms):,} arms, too many to keep what is expected of each"
        raise SpecError(detail, field=TABLE_FIELD, remedy=f"draw {_MAX_CELLS // len(arms):,} of the rows at random")
    row_indices = np.flatnonzero(np.all([table_rows.column(name).codes >= 0 for name in required], axis=0))
    rows = drop_incomplete_rows(table_rows, required, remarks)
    units = np.arange(rows.n_rows)
    if grouping:
        units = np.unique(rows.column(grouping[1]).codes, return_inverse=True)[1]
        if not units.any():
            raise SpecError("has one value", field=grouping[1], remedy=f"name a column of at least two {grouping[0]}")
    if cluster:
        remarks += few_cluster_warnings(int(units.max()) + 1, shorten(cluster))
    return ChoiceLog(
        table,
        row_indices,
        {name: values[row_indices] for name, values in table.arrays(context).items()},
        tuple(arms),
        _read_arm_indices(rows.column(action), arms, "correct it, or leave such rows out"),
        read_rewards(rows.column(reward), must_vary=False),
        _read_propensities(rows, propensity),
        units,
        grouping and grouping[0],
        tuple(remarks),
    )


def _read_arm_indices(column: DataColumn, arms: Sequence[str], remedy: str) -> NDArray[np.int64]:
    """Return the index of each row's arm among the log's arms, (n,); refuse a row with another arm or with none."""
    indices = find_indices(column, arms)
    if (indices < 0).any():
        row = int((indices < 0).argmax())
        detail = f"row {row:,}, counted from 0, has an arm that is not one of {', '.join(arms)}"
        raise SpecError(detail, field=column.name, remedy=remedy)
    return indices


def _read_propensities(rows: TableRows, propensity: str | float) -> Array:
    """Read each row's propensity from a column or a constant; refuse those that are not in (0, 1]."""
    if isinstance(propensity, str):
        column, field = rows.column(propensity), propensity
        propensities = column.quantities[column.codes]
    else:
        propensities, field = np.full(rows.n_rows, float(propensity)), "propensity"
    is_invalid = ~((propensities > 0) & (propensities <= 1))
    if is_invalid.any():
        detail = f"must be above 0 and at most 1: row {int(is_invalid.argmax()):,}, counted from 0, is not"
        remedy = "log the probability with which the row's arm was chosen"
        raise SpecError(detail, field=field, remedy=remedy)
    return propensities


def resolve_arms(policy: Decider | None, arms: Sequence[str] | None, table: DataTable, action: str) -> Sequence[str]:
    """Return the names of all arms: the given names, the policy's, or those in the log's column of arms.

    Raises a `SpecError` if the policy is an arm that is not among them.
    """
    if arms is None and isinstance(policy, LoadedPolicy):
        return policy.arms
    if arms is None:
        check_columns_exist([action], table.header)
        arms = sorted(table.read([action]).column(action).counts)
        arms = sorted(arms, key=int) if all(map(str.isdecimal, arms)) else arms
    name, names = parse_arm_name(policy), ", ".join(arms)
    if name is None or name in arms:
        return arms
    if isinstance(policy, str):
        detail, remedy = f"there is no arm of this name among {names}", "name one of them, or list all in arms"
    else:
        detail = f"a number is the arm of that name, and there is none among {names}"
        remedy = f"write the arm's name, as in {arms[0]!r}"
    raise SpecError(detail, field="policy", remedy=remedy)


def parse_arm_name(policy: Any) -> str | None:
    """Return the arm's name if a policy always chooses one arm, given as text or a whole number; else None."""
    if isinstance(policy, str):
        return policy
    is_integer = isinstance(policy, int | np.integer) and not isinstance(policy, bool)
    return str(int(policy)) if is_integer else None


def arm_probabilities(policy: Decider, log: ChoiceLog) -> Array:
    """Return the probability with which a policy chooses each arm for each row of a log, (n, arms).

    Refuses a policy that needs a column that the log lacks, or does not return arms or probabilities.
    """
    if (name := parse_arm_name(policy)) is not None:
        return np.tile(np.array(log.arms) == name, (len(log), 1)).astype(np.float64)
    if isinstance(policy, LoadedPolicy):
        probabilities = policy.shares_at(encode_contexts(log.contexts(policy.spec), policy.spec))
        return _reorder_arms(probabilities, policy.arms, log.arms)
    if not callable(policy):
        remedy = "give a policy of lab.policy or lab.simulate, a function, or the name of an arm as text"
        raise SpecError("is no policy", field="policy", remedy=remedy)
    return _parse_decisions(_call_policy(policy, log), log)


def _call_policy(policy: Callable[[Columns], Any], log: ChoiceLog) -> Any:
    """Call a policy function with the context columns, and return its decisions."""
    try:
        return policy(_Context(log.columns))
    except ValueError as error:
        if "truth value" not in str(error):  # numpy's words for a column in the place of one value
            raise
        detail = "treats a column as if it were one person's value"
        raise SpecError(detail, field="policy", remedy="decide for all rows at once, as with numpy.where") from error


def _reorder_arms(probabilities: Array, names: Sequence[str], arms: Sequence[str]) -> Array:
    """Order probabilities by the log's arms, 0 for arms that the policy lacks; refuse a policy's arm it lacks."""
    if missing := sorted(set(names) - set(arms)):
        remedy = "list all arms of the policy in arms, or leave arms out"
        raise SpecError(f"lacks arms of the policy: {', '.join(missing)}", field="arms", remedy=remedy)
    ordered = np.zeros((len(probabilities), len(arms)))
    ordered[:, [list(arms).index(name) for name in names]] = probabilities
    return ordered


def _parse_decisions(decisions: Any, log: ChoiceLog) -> Array:
    """Return arm probabilities, (n, arms), from the names or probabilities that a policy function returned."""
    if isinstance(decisions, Mapping):
        if unknown := sorted(set(map(str, decisions)) - set(log.arms)):
            detail = f"gives arms that the log does not have: {', '.join(unknown)}"
            raise SpecError(detail, field="policy", remedy=_REMEDY)
        try:
            shares = {str(name): np.asarray(share, np.float64) for name, share in decisions.items()}
            probabilities_by_arm = {name: np.broadcast_to(share, len(log)) for name, share in shares.items()}
        except (TypeError, ValueError):
            raise SpecError("gives something else than probabilities", field="policy", remedy=_REMEDY) from None
        probabilities = np.stack([probabilities_by_arm.get(name, np.zeros(len(log))) for name in log.arms], axis=1)
        if not ((probabilities >= 0).all() and (np.abs(probabilities.sum(axis=1) - 1) < _PROBABILITY_TOLERANCE).all()):
            detail = "gives probabilities that are negative or do not sum to 1"
            raise SpecError(detail, field="policy", remedy=_REMEDY)
        return probabilities
    names = np.asarray(decisions)
    if names.shape != (len(log),):
        detail = f"must answer for each of the {len(log):,} rows"
        raise SpecError(detail, field="policy", remedy=_REMEDY)
    column = DataTable({"policy": names}).read().column("policy")
    indices = _read_arm_indices(column, log.arms, "return names of the log's arms, or list all in arms")
    return np.asarray(indices[:, None] == np.arange(len(log.arms)), np.float64)
