"""Partition policies for tests: random dyadic partitions with active arms and slots shared out over them."""

from dataclasses import fields, is_dataclass, replace
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from privateer_core.algorithms.partition import DEPTH_MAX, PartitionPolicy
from privateer_core.mechanisms import SignedSymbol
from privateer_core.primitives.public_coins import UNIT, Layout
from privateer_core.privacy.terms import Terms


def local_terms(layout: Layout, batch: int = 1000) -> Terms:
    """Terms of a round under the local model at epsilon 1."""
    return Terms("local", 1.0, 0.0, "tight", batch, 0, SignedSymbol(layout, 1.0, 1, False))


def random_bins(rng: np.random.Generator, splits: int, deepest: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Depths and paths, in order, after ``splits`` halvings of random bins no deeper than ``deepest``."""
    bins = [(0, 0)]
    for _ in range(splits):
        index = int(rng.integers(len(bins)))
        depth, path = bins[index]
        if depth < deepest:
            bins[index : index + 1] = [(depth + 1, 2 * path), (depth + 1, 2 * path + 1)]
    return np.array([d for d, _ in bins], np.int64), np.array([p for _, p in bins], np.int64)


def thresholds(active: NDArray[np.bool_]) -> NDArray[np.uint32]:
    """Equal shares of the slots for the active arms of each row."""
    share = np.cumsum(active, axis=1) / active.sum(axis=1, keepdims=True)
    return np.rint(share[:, :-1] * UNIT).astype(np.uint32)


def make_policy(
    seed: int = 0, dimension: int = 2, arms: int = 3, splits: int = 6, deepest: int = 40, *, in_key: bool = False
) -> PartitionPolicy:
    """A random policy that passes its check; ``in_key``: reports have coins of their own, and the arm in the key."""
    rng = np.random.default_rng(seed)
    depths, paths = random_bins(rng, splits, deepest)
    active = rng.random((len(depths), arms)) < 0.6
    active[np.arange(len(depths)), rng.integers(0, arms, len(depths))] = True
    bins = np.flatnonzero(active.sum(axis=1) > 1)
    axes = rng.integers(0, dimension, DEPTH_MAX)
    layout = Layout(int(rng.integers(2**63)), thresholds(active[bins]))
    reported = Layout(layout.seed, np.zeros((int(active[bins].sum()), 0), np.uint32)) if in_key else layout
    return PartitionPolicy(
        version=1,
        dimension=dimension,
        axes=axes,
        depths=depths,
        paths=paths,
        active=active,
        bins=bins,
        terms=local_terms(reported),
        choice=layout if in_key else None,
    )


def with_parts(state: Any, **changes: Any) -> Any:
    """Return a tuned learner's state with changed fields, its own or its parts', by their names there."""
    for name in ("tree", "evidence", "hyperparameters", "posterior"):
        part = getattr(state, name)
        changed_fields = {field.name: changes.pop(field.name) for field in fields(part) if field.name in changes}
        state = replace(state, **{name: replace(part, **changed_fields)})
    return replace(state, **{"constant": None, **changes})


def same(left: Any, right: Any) -> bool:
    """Whether two dataclasses or structs hold the same values, arrays with dtype and shape included."""
    if is_dataclass(left) or isinstance(left, msgspec.Struct):
        names = [field.name for field in (fields(left) if is_dataclass(left) else msgspec.structs.fields(left))]
        pairs = ((getattr(left, name), getattr(right, name)) for name in names)
        return type(left) is type(right) and all(same(a, b) for a, b in pairs)
    if isinstance(left, np.ndarray):
        alike = left.dtype == right.dtype and left.shape == right.shape
        return alike and np.array_equal(left, right, equal_nan=left.dtype.kind == "f")
    if isinstance(left, tuple) and isinstance(right, tuple):
        return len(left) == len(right) and all(map(same, left, right))
    return bool(left == right)
