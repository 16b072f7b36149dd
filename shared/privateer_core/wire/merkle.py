"""Merkle trees as in RFC 9162 (section 2.1), with inclusion proofs and consistency proofs."""

from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import Final, Self

HASH_SIZE: Final = 32
EMPTY_ROOT: Final = sha256(b"").digest()
"""The root of an empty tree."""


def leaf_hash(entry: bytes) -> bytes:
    """Return the hash of a leaf."""
    return sha256(b"\0" + entry).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """Return the hash of a node from the hashes of its two subtrees."""
    return sha256(b"\1" + left + right).digest()


class MerkleTree:
    """A growing Merkle tree that stores all complete subtrees: 64 bytes a leaf, and proofs in logarithmic time."""

    def __init__(self, leaves: Iterable[bytes] = ()) -> None:
        self._levels = [bytearray()]
        for leaf in leaves:
            self.append(leaf)

    def __len__(self) -> int:
        return len(self._levels[0]) // HASH_SIZE

    def append(self, leaf: bytes) -> None:
        """Add the hash of a leaf."""
        index, level, node = len(self), 0, leaf
        self._levels[0] += node
        while index & 1:
            index, level = index >> 1, level + 1
            node = node_hash(self._node(level - 1, 2 * index), node)
            if level == len(self._levels):
                self._levels.append(bytearray())
            self._levels[level] += node

    def leaves(self, start: int, end: int) -> bytes:
        """Return the hashes of a range of leaves, concatenated."""
        return bytes(self._levels[0][HASH_SIZE * start : HASH_SIZE * end])

    def root(self, size: int) -> bytes:
        """Return the root of the tree of the first ``size`` leaves."""
        return self._range_hash(0, size) if size else EMPTY_ROOT

    def peaks(self, size: int) -> "Peaks":
        """Return the complete subtrees of the first ``size`` leaves."""
        hashes, start = list[bytes](), 0
        for level in reversed(range(size.bit_length())):
            if size >> level & 1:
                hashes.append(self._node(level, start >> level))
                start += 1 << level
        return Peaks(size, hashes)

    def inclusion_proof(self, index: int, size: int) -> list[bytes]:
        """Return the proof that a leaf is in the tree of the first ``size`` leaves."""
        path, start, end = list[bytes](), 0, size
        while end - start > 1:
            middle = start + _left_size(end - start)
            if index < middle:
                path.append(self._range_hash(middle, end))
                end = middle
            else:
                path.append(self._range_hash(start, middle))
                start = middle
        return path[::-1]

    def consistency_proof(self, first: int, second: int) -> list[bytes]:
        """Return the proof that the tree of the first ``second`` leaves begins with that of the first ``first``."""
        path, start, end, is_subtree = list[bytes](), 0, second, True
        while 0 < first < end:
            middle = start + _left_size(end - start)
            if first <= middle:
                path.append(self._range_hash(middle, end))
                end = middle
            else:
                path.append(self._range_hash(start, middle))
                start, is_subtree = middle, False
        if not is_subtree:
            path.append(self._range_hash(start, end))
        return path[::-1]

    def _node(self, level: int, index: int) -> bytes:
        return bytes(self._levels[level][HASH_SIZE * index : HASH_SIZE * (index + 1)])

    def _range_hash(self, start: int, end: int) -> bytes:
        """Return the hash of the subtree over a range of leaves, from stored nodes."""
        size = end - start
        if size & (size - 1) == 0:  # what the splits lead to is aligned
            level = size.bit_length() - 1
            return self._node(level, start >> level)
        middle = start + _left_size(size)
        return node_hash(self._range_hash(start, middle), self._range_hash(middle, end))


class Peaks:
    """The roots of the complete subtrees of a tree, the largest first, which suffice to add leaves."""

    def __init__(self, size: int, hashes: Sequence[bytes]) -> None:
        if size.bit_count() != len(hashes):
            raise ValueError("a complete subtree for each bit of the size")
        self.size, self.hashes = size, list(hashes)

    @property
    def root(self) -> bytes:
        """The root of the tree."""
        if not self.hashes:
            return EMPTY_ROOT
        node = self.hashes[-1]
        for sibling in self.hashes[-2::-1]:
            node = node_hash(sibling, node)
        return node

    def add(self, leaf: bytes) -> Self:
        """Add the hash of a leaf."""
        index, node = self.size, leaf
        while index & 1:
            node, index = node_hash(self.hashes.pop(), node), index >> 1
        self.hashes.append(node)
        self.size += 1
        return self


def is_included(leaf: bytes, index: int, size: int, path: Sequence[bytes], root: bytes) -> bool:
    """Whether a proof shows that a leaf is in a tree (RFC 9162, section 2.1.3.2)."""
    if not 0 <= index < size:
        return False
    position, last, node = index, size - 1, leaf
    for sibling in path:
        if last == 0:
            return False
        if position & 1 or position == last:
            node = node_hash(sibling, node)
            while position and not position & 1:
                position, last = position >> 1, last >> 1
        else:
            node = node_hash(node, sibling)
        position, last = position >> 1, last >> 1
    return last == 0 and node == root


def is_consistent(first: int, first_root: bytes, second: int, second_root: bytes, path: Sequence[bytes]) -> bool:
    """Whether a proof shows that one tree begins with another (RFC 9162, section 2.1.4.2)."""
    if not 0 < first <= second:
        return False
    if first == second:
        return not path and first_root == second_root
    nodes = [first_root, *path] if first & (first - 1) == 0 else list(path)
    if not nodes:
        return False
    position, last = first - 1, second - 1
    while position & 1:
        position, last = position >> 1, last >> 1
    old = new = nodes[0]
    for sibling in nodes[1:]:
        if last == 0:
            return False
        if position & 1 or position == last:
            old, new = node_hash(sibling, old), node_hash(sibling, new)
            while position and not position & 1:
                position, last = position >> 1, last >> 1
        else:
            new = node_hash(new, sibling)
        position, last = position >> 1, last >> 1
    return last == 0 and (old, new) == (first_root, second_root)


def _left_size(size: int) -> int:
    """Return the largest power of 2 below a size."""
    return 1 << (size - 1).bit_length() - 1
