"""Policies in a notebook: loaded from a server or a file, evaluated on contexts, and drawn as a map."""

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
from privateer_core.policies.gain_policy import check_policy
from privateer_core.policies.policy import Plays, Points
from privateer_core.spec.categories import Boolean, Categorical, Hashed, Ordinal
from privateer_core.spec.context import encode_features
from privateer_core.spec.features import Feature, Numeric, Ranked
from privateer_core.spec.spec import Spec
from privateer_core.wire.publication import MEDIA_TYPE, decode_publication
from privateer_lab.cli.input_files import read_document
from privateer_lab.environments.files import read_contexts
from privateer_lab.notebook.tabular import ResultTable, Tabular, build_table
from privateer_lab.render.pictures import COLOURS, Picture, open_picture
from privateer_lab.render.tables import part_tables
from privateer_lab.render.words import describe_bin
from privateer_lab.services.rest import fetch_bytes
from privateer_lab.simulation.scores import encode_contexts
from privateer_lab.tables.data_table import DataTable
from privateer_server.rounds.open_round import read_decider

Array: TypeAlias = NDArray[np.float64]
_DEFAULT_SERVER_URL: Final = "http://127.0.0.1:8000"
_N_COINS: Final = 64
"""Coins drawn for each participant where a policy has no closed form of its probabilities."""
_N_MAP_STEPS: Final = 160
_MIN_CERTAIN_SHARE: Final = 0.999
_WHITE_FRACTION: Final = 0.55


@runtime_checkable
class _LocatingPolicy(Protocol):
    """A policy that maps contexts to bins with known shares of the arms."""

    shares: NDArray[np.float64]

    def locate(self, contexts: Array) -> NDArray[np.int64]: ...


@dataclass(frozen=True, repr=False)
class LoadedPolicy(Tabular):
    """A policy with its spec.

    Attributes
    ----------
    spec
        The experiment's spec.
    decoded
        The policy as devices decode it.
    """

    spec: Spec
    decoded: Any = field(repr=False)

    @property
    def arms(self) -> tuple[str, ...]:
        """Names of the arms."""
        return self.spec.options

    @cached_property
    def table(self) -> ResultTable:
        """A row with the shares of the arms for each bin or group of participants; or else the policy's own tables."""
        shows, title = self.decoded.view(self.spec).shows, f"policy of {self.spec.name}"
        if isinstance(shows, BinShares):
            people = [(describe_bin(bin_.where), bin_.arms) for bin_ in shows.bins]
        elif isinstance(shows, GroupShares):
            people = [(group.name, group.arms) for group in shows.groups]
        else:
            return build_table(title, (row for titled in part_tables(shows) for row in titled.rows))
        rows = ({"people": name, **{arm: shares.get(arm, 0.0) for arm in self.arms}} for name, shares in people)
        return build_table(title, rows)

    def shares(self, contexts: Any) -> Array:
        """Return the probability of every arm, (n, arms), for participants with these contexts.

        Parameters
        ----------
        contexts
            A data frame or mapping with a column for each feature of the spec.

        Raises
        ------
        SpecError
            If a column is missing or has a value that the feature cannot have.
        """
        return self.at(encode_contexts(read_contexts(DataTable(contexts), self.spec), self.spec))

    def at(self, columns: Array, seed: int = 0) -> Array:
        """Return the probability of every arm, (n, arms), for encoded contexts, (n, columns).

        Policies of bins store it. Other policies decide with 64 coins a participant, drawn from the seed: the shares
        of their decisions are unbiased, and so are estimates that use them.

        Raises
        ------
        SpecError
            If the policy does not choose an arm for each person.
        """
        policy = self.decoded
        if isinstance(policy, _LocatingPolicy):
            return np.asarray(policy.shares[policy.locate(columns)])
        rng, probabilities = np.random.default_rng(seed), np.zeros((len(columns), len(self.arms)))
        for _ in range(_N_COINS):
            decision = policy.decide(columns, rng.integers(0, 2**32, len(columns), dtype=np.uint32))
            if isinstance(decision, Plays | Points):
                detail = "chooses something else than an arm for each person"
                raise SpecError(detail, field="policy", remedy="use the policy of an experiment that chooses arms")
            probabilities[np.arange(len(columns)), decision.arms] += 1 / _N_COINS
        return probabilities


def policy(source: "str | PathLike[str] | Mapping[str, Any]", version: int | None = None) -> LoadedPolicy:
    """Load a policy that a server published, or that ``privateer export`` wrote.

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
        If there is no answer, no such experiment, or the document is no policy.
    """
    if isinstance(source, Mapping):
        return _load_exported(source)
    if isinstance(source, PathLike) or str(source).endswith(".json"):
        return _load_exported(read_document(Path(source)))
    if not isinstance(source, str):
        remedy = "give the name of an experiment, its address, or an exported file"
        raise SpecError("is no policy", field="policy", remedy=remedy)
    page = experiment_url(source) + "/policy" + (f"/{version}" if version else "")
    return _load_publication(fetch_bytes(page, field="url", headers={"Accept": MEDIA_TYPE}))


def experiment_url(experiment: str) -> str:
    """Return the URL of an experiment, given as a URL or as a name on the server of ``PRIVATEER_URL``."""
    if "://" in experiment:
        return experiment.rstrip("/")
    return f"{environ.get('PRIVATEER_URL', _DEFAULT_SERVER_URL).rstrip('/')}/experiments/{experiment}"


def _load_exported(document: Any) -> LoadedPolicy:
    """Load the policy of an exported experiment; refuse other documents."""
    try:
        publication = base64.b64decode(document["publication"], validate=True)
    except (KeyError, TypeError, ValueError, binascii.Error):
        detail = "is not an exported experiment"
        raise SpecError(detail, field="policy", remedy="give a file that privateer export wrote") from None
    return _load_publication(publication)


def _load_publication(publication: bytes) -> LoadedPolicy:
    """Load and check the policy of a publication; refuse damaged ones."""
    try:
        decoded = decode_publication(publication)
        spec = parse_spec(msgspec.json.decode(decoded.spec))
        decider: Any = read_decider(spec, decoded)
        check_policy(decider, spec)
    except (PrivateerError, msgspec.DecodeError):
        raise SpecError("is not a published policy", field="policy", remedy="fetch or export it again") from None
    return LoadedPolicy(spec, decider)


@dataclass(frozen=True)
class MapAxis:
    """An axis of a map: a feature in steps."""

    name: str  # of the feature
    numbers: Array  # shape (steps,): the result of `Feature.read` at the middle of each step
    edges: Array  # shape (steps + 1,): the ends of the steps on the picture
    ticks: tuple[str, ...] | None = None  # names of levels at the middle of each step; None for numbers


def draw_map(policy: LoadedPolicy, x: str | None, y: str | None) -> Picture:
    """Draw a policy as a map of two features, or as bars if it has no context."""
    axes, title = _build_map_axes(policy, x, y), f"{policy.spec.name}: the arm that people get"
    if not axes:
        return _draw_bars(policy, title)
    x_axis, y_axis = (axes[0], axes[1] if len(axes) > 1 else MapAxis("", np.zeros(1), np.array([0.0, 1.0]), ()))
    shares = _shares_on_map(policy, axes)
    best_arms, max_shares = shares.argmax(axis=-1), shares.max(axis=-1)
    with open_picture(title, height=4.0 if y_axis.name else 2.0) as (picture, (axis,)):
        colours = _cell_colours(best_arms, max_shares)
        axis.pcolormesh(x_axis.edges, y_axis.edges, colours)
        axis.grid(visible=False)
        _set_ticks(axis.xaxis, x_axis)
        _set_ticks(axis.yaxis, y_axis)
        axis.set_xlabel(_axis_label(policy, x_axis.name, {map_axis.name for map_axis in axes}))
        axis.set_ylabel(y_axis.name)
        _draw_legend(axis, policy, best_arms, bool((max_shares < _MIN_CERTAIN_SHARE).any()))
    return picture


def _build_map_axes(policy: LoadedPolicy, x: str | None, y: str | None) -> list[MapAxis]:
    """Build the axes of up to two features, the first of the spec by default; refuse unknown names."""
    features = policy.spec.features
    for name in (x, y):
        if name is not None and name not in features:
            remedy = f"choose from {', '.join(features)}" if features else "leave it out: there is no context"
            raise SpecError("no feature has this name", field=name, remedy=remedy)
    first = x or next((name for name in features if name != y), None)
    second = y or next((name for name in features if name != first), None)
    return [_build_map_axis(name, features[name]) for name in (first, second) if name is not None]


def _build_map_axis(name: str, feature: Feature) -> MapAxis:
    """Build a feature's axis: its levels, or steps between its bounds."""
    levels = _level_names(feature)
    if levels is not None:
        positions = np.arange(len(levels) + 1, dtype=np.float64)
        return MapAxis(name, positions[:-1], np.asarray(positions - 0.5), levels)
    assert isinstance(feature, Numeric | Ranked)
    low, high = float(feature.value_at(0.0)), float(feature.value_at(1.0))
    edges = np.asarray(np.linspace(low, high, _N_MAP_STEPS + 1), np.float64)
    return MapAxis(name, np.asarray((edges[1:] + edges[:-1]) / 2), edges)


def _level_names(feature: Feature) -> tuple[str, ...] | None:
    if isinstance(feature, Categorical | Hashed | Ordinal):
        return tuple(str(level) for level in feature.levels)
    return ("no", "yes") if isinstance(feature, Boolean) else None


def _middle_value(feature: Feature) -> float:
    """Return the result of `Feature.read` for the middle level or the median."""
    levels = _level_names(feature)
    if levels is not None:
        return float(len(levels) // 2)
    assert isinstance(feature, Numeric | Ranked)
    return float(feature.value_at(0.5))


def _shares_on_map(policy: LoadedPolicy, map_axes: list[MapAxis]) -> Array:
    """Return shares of the arms, (y steps, x steps, arms)."""
    grids = np.meshgrid(*(map_axis.numbers for map_axis in map_axes))
    contexts = np.tile([_middle_value(feature) for feature in policy.spec.features.values()], (grids[0].size, 1))
    names = list(policy.spec.features)
    for map_axis, grid in zip(map_axes, grids, strict=True):
        contexts[:, names.index(map_axis.name)] = grid.ravel()
    shares = policy.at(encode_features(policy.spec.features, contexts))
    shape = grids[0].shape if len(map_axes) > 1 else (1, grids[0].size)
    return shares.reshape(*shape, -1)


def _cell_colours(best: NDArray[np.int64], max_shares: Array) -> Array:
    """Return the colour of each cell of the map: the best arm's, paler where other arms have a share, too."""
    colours = np.array([[int(code[k : k + 2], 16) / 255 for k in (1, 3, 5)] for code in COLOURS])[best % len(COLOURS)]
    white_fractions = np.where(max_shares < _MIN_CERTAIN_SHARE, _WHITE_FRACTION, 0.0)[..., None]
    return np.asarray(colours * (1 - white_fractions) + white_fractions)


def _set_ticks(axis: Any, map_axis: MapAxis) -> None:
    if map_axis.ticks is not None:
        axis.set_ticks(((map_axis.edges[1:] + map_axis.edges[:-1]) / 2)[: len(map_axis.ticks)], labels=map_axis.ticks)


def _axis_label(policy: LoadedPolicy, name: str, drawn_names: set[str]) -> str:
    averaged = [feature for feature in policy.spec.features if feature not in drawn_names]
    return f"{name} (of people in the middle of {', '.join(averaged)})" if averaged else name


def _draw_legend(axis: Any, policy: LoadedPolicy, best_arms: NDArray[np.int64], has_mixed_cells: bool) -> None:
    """Draw a legend of the arms that are best somewhere, with a note on paler cells."""
    drawn_arms = np.unique(best_arms).tolist()
    handles = [axis.plot([], [], "s", color=COLOURS[arm % len(COLOURS)], markersize=9)[0] for arm in drawn_arms]
    labels = [policy.arms[arm] for arm in drawn_arms]
    if has_mixed_cells:
        handles.append(axis.plot([], [], "s", color="#cccccc", markersize=9)[0])
        labels.append("paler: others\nare tried, too")
    axis.legend(handles, labels, fontsize=8, loc="upper left", bbox_to_anchor=(1.01, 1.0))


def _draw_bars(policy: LoadedPolicy, title: str) -> Picture:
    """Draw the shares of the arms of a policy without a context."""
    shares = policy.at(np.zeros((256, policy.spec.dimension))).mean(axis=0)
    with open_picture(title, height=2.6) as (picture, (axis,)):
        axis.barh(policy.arms, shares, color=COLOURS[0])
        axis.invert_yaxis()
        axis.set_xlim(0, 1)
        axis.set_xlabel("share of the people")
        axis.grid(visible=False, axis="y")
    return picture
