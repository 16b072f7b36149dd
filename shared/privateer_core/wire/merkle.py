"""Merkle trees as in RFC 9162 (section 2.1): a root says what a list begins with, and short proofs show it."""

from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import Final, Self

HASH_SIZE: Final = 32
EMPTY_ROOT: Final = sha256(b"").digest()
"""The root of no leaves."""


def leaf_hash(entry: bytes) -> bytes:
    """Return the hash of a leaf."""
    return sha256(b"\0" + entry).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """Return the hash of two subtrees."""
    return sha256(b"\1" + left + right).digest()


class MerkleTree:
    """All complete subtrees over the leaves so far: 64 bytes a leaf, and every proof in logarithmic time."""

    def __init__(self, leaves: Iterable[bytes] = ()) -> None:
        self._levels = [bytearray()]
        for leaf in leaves:
            self.append(leaf)

    def __len__(self) -> int:
        return len(self._levels[0]) // HASH_SIZE

    def append(self, leaf: bytes) -> None:
        """Add the hash of a leaf."""
        place, level, carried = len(self), 0, leaf
        self._levels[0] += carried
        while place & 1:
            place, level = place >> 1, level + 1
            carried = node_hash(self._node(level - 1, 2 * place), carried)
            if level == len(self._levels):
                self._levels.append(bytearray())
            self._levels[level] += carried

    def leaves(self, start: int, end: int) -> bytes:
        """Return hashes of leaves, one after another."""
        return bytes(self._levels[0][HASH_SIZE * start : HASH_SIZE * end])

    def root(self, size: int) -> bytes:
        """Return the root of the first leaves."""
        return self._range(0, size) if size else EMPTY_ROOT

    def peaks(self, size: int) -> "Peaks":
        """Return the complete subtrees of the first leaves."""
        found, start = list[bytes](), 0
        for level in reversed(range(size.bit_length())):
            if size >> level & 1:
                found.append(self._node(level, start >> level))
                start += 1 << level
        return Peaks(size, found)

    def inclusion(self, index: int, size: int) -> list[bytes]:
        """Return the proof that a leaf is in the tree of the first leaves."""
        path, start, end = list[bytes](), 0, size
        while end - start > 1:
            middle = start + _split(end - start)
            if index < middle:
                path.append(self._range(middle, end))
                end = middle
            else:
                path.append(self._range(start, middle))
                start = middle
        return path[::-1]

    def consistency(self, first: int, second: int) -> list[bytes]:
        """Return the proof that the tree of the first ``second`` leaves begins with that of the first ``first``."""
        path, start, end, is_whole = list[bytes](), 0, second, True
        while 0 < first < end:
            middle = start + _split(end - start)
            if first <= middle:
                path.append(self._range(middle, end))
                end = middle
            else:
                path.append(self._range(start, middle))
                start, is_whole = middle, False
        if not is_whole:
            path.append(self._range(start, end))
        return path[::-1]

    def _node(self, level: int, place: int) -> bytes:
        return bytes(self._levels[level][HASH_SIZE * place : HASH_SIZE * (place + 1)])

    def _range(self, start: int, end: int) -> bytes:
        size = end - start
        if size & (size - 1) == 0:  # what the splits lead to is aligned
            level = size.bit_length() - 1
            return self._node(level, start >> level)
        middle = start + _split(size)
        return node_hash(self._range(start, middle), self._range(middle, end))


class Peaks:
    """The complete subtrees of a list of leaves, the largest first: enough to add leaves, and to know the root."""

    def __init__(self, size: int, hashes: Sequence[bytes]) -> None:
        if size.bit_count() != len(hashes):
            raise ValueError("a complete subtree for each bit of the size")
        self.size, self.hashes = size, list(hashes)

    @property
    def root(self) -> bytes:
        """The root of the list."""
        if not self.hashes:
            return EMPTY_ROOT
        found = self.hashes[-1]
        for left in self.hashes[-2::-1]:
            found = node_hash(left, found)
        return found

    def add(self, leaf: bytes) -> Self:
        """Add the hash of a leaf."""
        place, found = self.size, leaf
        while place & 1:
            found, place = node_hash(self.hashes.pop(), found), place >> 1
        self.hashes.append(found)
        self.size += 1
        return self


def included(leaf: bytes, index: int, size: int, path: Sequence[bytes], root: bytes) -> bool:
    """Whether a proof shows that a leaf is in a tree (RFC 9162, section 2.1.3.2)."""
    if not 0 <= index < size:
        return False
    place, last, found = index, size - 1, leaf
    for part in path:
        if last == 0:
            return False
        if place & 1 or place == last:
            found = node_hash(part, found)
            while place and not place & 1:
                place, last = place >> 1, last >> 1
        else:
            found = node_hash(found, part)
        place, last = place >> 1, last >> 1
    return last == 0 and found == root


def consistent(first: int, first_root: bytes, second: int, second_root: bytes, path: Sequence[bytes]) -> bool:
    """Whether a proof shows that one tree begins with another (RFC 9162, section 2.1.4.2)."""
    if not 0 < first <= second:
        return False
    if first == second:
        return not path and first_root == second_root
    parts = [first_root, *path] if first & (first - 1) == 0 else list(path)
    if not parts:
        return False
    place, last = first - 1, second - 1
    while place & 1:
        place, last = place >> 1, last >> 1
    old = new = parts[0]
    for part in parts[1:]:
        if last == 0:
            return False
        if place & 1 or place == last:
            old, new = node_hash(part, old), node_hash(part, new)
            while place and not place & 1:
                place, last = place >> 1, last >> 1
        else:
            new = node_hash(new, part)
        place, last = place >> 1, last >> 1
    return last == 0 and (old, new) == (first_root, second_root)


def _split(size: int) -> int:
    """Return the largest power of 2 below a size."""
    return 1 << (size - 1).bit_length() - 1
