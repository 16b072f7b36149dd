"""Policies in a notebook: loaded from anywhere, tried, and drawn as a map."""

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from os import PathLike, environ
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias, runtime_checkable

import msgspec
import numpy as np
from numpy.typing import NDArray

from privateer_core.algorithms import parse_spec
from privateer_core.answer.policy_view import BinShares, GroupShares
from privateer_core.errors import PrivateerError, SpecError
from privateer_core.policies.decisions import Plays, Points
from privateer_core.policies.gain_policy import check_policy
from privateer_core.spec.categories import Boolean, Categorical, Hashed, Ordinal
from privateer_core.spec.context import encoded
from privateer_core.spec.features import Feature, Numeric, Ranked
from privateer_core.spec.spec import Spec
from privateer_core.wire.envelope import MEDIA_TYPE
from privateer_core.wire.publication import decode_publication
from privateer_lab.answer_tables import rows_of
from privateer_lab.answer_words import people_in
from privateer_lab.cli.input_files import read_document
from privateer_lab.environments.file_contexts import contexts_of
from privateer_lab.notebook.tabular import ResultTable, Tabular, table_of
from privateer_lab.picture import COLOURS, Picture, drawing
from privateer_lab.services.rest import fetch
from privateer_lab.simulation.devices import scaled
from privateer_lab.tables.data_table import DataTable
from privateer_server.rounds.open_round import read_decider

Array: TypeAlias = NDArray[np.float64]
_SERVER: Final = "http://127.0.0.1:8000"
_DRAWS: Final = 64
"""Coins for each person where a policy does not say its shares."""
_STEPS: Final = 160
_SURE: Final = 0.999
_PALE: Final = 0.55


@runtime_checkable
class _Located(Protocol):
    """A policy that says where a context is, and which shares the arms have there."""

    shares: NDArray[np.float64]

    def locate(self, contexts: Array) -> NDArray[np.int64]: ...


@dataclass(frozen=True, repr=False)
class LoadedPolicy(Tabular):
    """A policy with its spec.

    Attributes
    ----------
    spec
        The experiment's.
    decoded
        What devices decide by.
    """

    spec: Spec
    decoded: Any = field(repr=False)

    @property
    def arms(self) -> tuple[str, ...]:
        """Names of the arms."""
        return self.spec.options

    @cached_property
    def table(self) -> ResultTable:
        """A row for each bin or group of people with the shares of arms there; of other policies what they have."""
        shows, title = self.decoded.view(self.spec).shows, f"policy of {self.spec.name}"
        if isinstance(shows, BinShares):
            people = [(people_in(one.where), one.arms) for one in shows.bins]
        elif isinstance(shows, GroupShares):
            people = [(one.name, one.arms) for one in shows.groups]
        else:
            return table_of(title, (row for one in rows_of(shows) for row in one.rows))
        return table_of(
            title, ({"people": name, **{arm: arms.get(arm, 0.0) for arm in self.arms}} for name, arms in people)
        )

    def shares(self, contexts: Any) -> Array:
        """Return the probability of every arm, (n, arms), for people with these contexts.

        Parameters
        ----------
        contexts
            A data frame or mapping with a column for each feature of the spec.

        Raises
        ------
        SpecError
            If a column is missing or has a value that the feature cannot have.
        """
        return self.at(scaled(contexts_of(DataTable(contexts), self.spec), self.spec))

    def at(self, columns: Array, seed: int = 0) -> Array:
        """Return the probability of every arm, (n, arms), for encoded contexts, (n, columns).

        Policies of bins tell it. Others are asked with 64 coins a person, drawn from the seed: their answers have the
        right mean, so that what is estimated with them has, too.

        Raises
        ------
        SpecError
            If the policy does not choose an arm for each person.
        """
        policy = self.decoded
        if isinstance(policy, _Located):
            return np.asarray(policy.shares[policy.locate(columns)])
        rng, found = np.random.default_rng(seed), np.zeros((len(columns), len(self.arms)))
        for _ in range(_DRAWS):
            decided = policy.decide(columns, rng.integers(0, 2**32, len(columns), dtype=np.uint32))
            if isinstance(decided, Plays | Points):
                detail = "chooses something else than an arm for each person"
                raise SpecError(detail, field="policy", remedy="use the policy of an experiment that chooses arms")
            found[np.arange(len(columns)), decided.arms] += 1 / _DRAWS
        return found


def policy(source: "str | PathLike[str] | Mapping[str, Any]", version: int | None = None) -> LoadedPolicy:
    """Return a policy that a server published, or that ``privateer export`` wrote.

    Parameters
    ----------
    source
        The experiment's name on the server of ``PRIVATEER_URL`` (by default this machine's), its address, such as
        ``http://127.0.0.1:8000/experiments/shop``; or the path, or the tables, of an exported experiment.
    version
        The policy of this round; by default the newest.

    Raises
    ------
    PrivateerError
        If there is no answer, no such experiment, or the document is none.
    """
    if isinstance(source, Mapping):
        return _exported(source)
    if isinstance(source, PathLike) or str(source).endswith(".json"):
        return _exported(read_document(Path(source)))
    if not isinstance(source, str):
        remedy = "give the name of an experiment, its address, or an exported file"
        raise SpecError("is no policy", field="policy", remedy=remedy)
    page = address(source) + "/policy" + (f"/{version}" if version else "")
    return _published(fetch(page, field="url", headers={"Accept": MEDIA_TYPE}))


def address(experiment: str) -> str:
    """Return the page of an experiment: what is given, or a name on the server of ``PRIVATEER_URL``."""
    if "://" in experiment:
        return experiment.rstrip("/")
    return f"{environ.get('PRIVATEER_URL', _SERVER).rstrip('/')}/experiments/{experiment}"


def _exported(document: Any) -> LoadedPolicy:
    try:
        publication = base64.b64decode(document["publication"], validate=True)
    except (KeyError, TypeError, ValueError, binascii.Error):
        detail = "is not an exported experiment"
        raise SpecError(detail, field="policy", remedy="give a file that privateer export wrote") from None
    return _published(publication)


def _published(publication: bytes) -> LoadedPolicy:
    try:
        decoded = decode_publication(publication)
        spec = parse_spec(msgspec.json.decode(decoded.spec))
        read: Any = read_decider(spec, decoded)
        check_policy(read, spec)
    except (PrivateerError, msgspec.DecodeError):
        raise SpecError("is not a published policy", field="policy", remedy="fetch or export it again") from None
    return LoadedPolicy(spec, read)


@dataclass(frozen=True)
class Side:
    """A side of a map.

    Attributes
    ----------
    name
        The feature.
    numbers
        Shape (steps,): what `Feature.read` returns at the middle of each step.
    edges
        Shape (steps + 1,): where steps end on the picture.
    ticks
        Names of levels at the middle of each step; None for numbers.
    """

    name: str
    numbers: Array
    edges: Array
    ticks: tuple[str, ...] | None = None


def draw_map(policy: LoadedPolicy, x: str | None, y: str | None) -> Picture:
    """Draw a policy.

    Raises
    ------
    SpecError
        If a feature is unknown.
    """
    sides, title = _sides(policy, x, y), f"{policy.spec.name}: the arm that people get"
    if not sides:
        return _bars(policy, title)
    across, up = sides[0], sides[1] if len(sides) > 1 else Side("", np.zeros(1), np.array([0.0, 1.0]), ())
    shares = _map_shares(policy, sides)
    best, sure = shares.argmax(axis=-1), shares.max(axis=-1)
    with drawing(title, height=4.0 if up.name else 2.0) as (picture, (axis,)):
        colours = _colours(best, sure)
        axis.pcolormesh(across.edges, up.edges, colours)
        axis.grid(visible=False)
        _ticks(axis.xaxis, across)
        _ticks(axis.yaxis, up)
        axis.set_xlabel(_labelled(policy, across.name, {side.name for side in sides}))
        axis.set_ylabel(up.name)
        _legend(axis, policy, best, bool((sure < _SURE).any()))
    return picture


def _sides(policy: LoadedPolicy, x: str | None, y: str | None) -> list[Side]:
    features = policy.spec.features
    for name in (x, y):
        if name is not None and name not in features:
            remedy = f"choose from {', '.join(features)}" if features else "leave it out: there is no context"
            raise SpecError("no feature has this name", field=name, remedy=remedy)
    first = x or next((name for name in features if name != y), None)
    second = y or next((name for name in features if name != first), None)
    return [_side(name, features[name]) for name in (first, second) if name is not None]


def _side(name: str, feature: Feature) -> Side:
    levels = _levels(feature)
    if levels is not None:
        places = np.arange(len(levels) + 1, dtype=np.float64)
        return Side(name, places[:-1], np.asarray(places - 0.5), levels)
    assert isinstance(feature, Numeric | Ranked)
    low, high = float(feature.value_at(0.0)), float(feature.value_at(1.0))
    edges = np.asarray(np.linspace(low, high, _STEPS + 1), np.float64)
    return Side(name, np.asarray((edges[1:] + edges[:-1]) / 2), edges)


def _levels(feature: Feature) -> tuple[str, ...] | None:
    if isinstance(feature, Categorical | Hashed | Ordinal):
        return tuple(str(level) for level in feature.levels)
    return ("no", "yes") if isinstance(feature, Boolean) else None


def _middle(feature: Feature) -> float:
    """Return what `Feature.read` returns of a person in the middle."""
    levels = _levels(feature)
    if levels is not None:
        return float(len(levels) // 2)
    assert isinstance(feature, Numeric | Ranked)
    return float(feature.value_at(0.5))


def _map_shares(policy: LoadedPolicy, sides: list[Side]) -> Array:
    """Return shares of the arms, (steps up, steps across, arms)."""
    grids = np.meshgrid(*(side.numbers for side in sides))
    raw = np.tile([_middle(one) for one in policy.spec.features.values()], (grids[0].size, 1))
    names = list(policy.spec.features)
    for side, grid in zip(sides, grids, strict=True):
        raw[:, names.index(side.name)] = grid.ravel()
    found = policy.at(encoded(policy.spec.features, raw))
    shape = grids[0].shape if len(sides) > 1 else (1, grids[0].size)
    return found.reshape(*shape, -1)


def _colours(best: NDArray[np.int64], sure: Array) -> Array:
    """Return the colour of each place: the favourite's, paler where others are tried, too."""
    colours = np.array([[int(one[k : k + 2], 16) / 255 for k in (1, 3, 5)] for one in COLOURS])[best % len(COLOURS)]
    pale = np.where(sure < _SURE, _PALE, 0.0)[..., None]
    return np.asarray(colours * (1 - pale) + pale)


def _ticks(which: Any, side: Side) -> None:
    if side.ticks is not None:
        which.set_ticks(((side.edges[1:] + side.edges[:-1]) / 2)[: len(side.ticks)], labels=side.ticks)


def _labelled(policy: LoadedPolicy, name: str, drawn: set[str]) -> str:
    rest = [one for one in policy.spec.features if one not in drawn]
    return f"{name} (of people in the middle of {', '.join(rest)})" if rest else name


def _legend(axis: Any, policy: LoadedPolicy, best: NDArray[np.int64], tries: bool) -> None:
    shown = np.unique(best).tolist()
    handles = [axis.plot([], [], "s", color=COLOURS[arm % len(COLOURS)], markersize=9)[0] for arm in shown]
    labels = [policy.arms[arm] for arm in shown]
    if tries:
        handles.append(axis.plot([], [], "s", color="#cccccc", markersize=9)[0])
        labels.append("paler: others\nare tried, too")
    axis.legend(handles, labels, fontsize=8, loc="upper left", bbox_to_anchor=(1.01, 1.0))


def _bars(policy: LoadedPolicy, title: str) -> Picture:
    """Draw the shares of arms where there is no context."""
    shares = policy.at(np.zeros((256, policy.spec.dimension))).mean(axis=0)
    with drawing(title, height=2.6) as (picture, (axis,)):
        axis.barh(policy.arms, shares, color=COLOURS[0])
        axis.invert_yaxis()
        axis.set_xlim(0, 1)
        axis.set_xlabel("share of the people")
        axis.grid(visible=False, axis="y")
    return picture
