"""Merkle trees, against the definition of RFC 9162, and the roots that Certificate Transparency's own tests have."""

import pytest

from privateer_core.wire.merkle import (
    EMPTY_ROOT,
    MerkleTree,
    Peaks,
    is_consistent,
    is_included,
    leaf_hash,
    node_hash,
)

LEAVES = [leaf_hash(bytes.fromhex(entry)) for entry in (
    "", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f",
)]  # fmt: skip
ROOTS = [
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
]
MANY = [leaf_hash(bytes([place])) for place in range(70)]


def defined(leaves: list[bytes]) -> bytes:
    """The root by the recursive definition."""
    if len(leaves) == 1:
        return leaves[0]
    middle = 1 << (len(leaves) - 1).bit_length() - 1
    return node_hash(defined(leaves[:middle]), defined(leaves[middle:]))


def test_roots_are_those_of_certificate_transparency() -> None:
    tree = MerkleTree(LEAVES)
    assert [tree.root(size).hex() for size in range(1, 9)] == ROOTS
    assert tree.root(0) == EMPTY_ROOT


@pytest.mark.parametrize("size", [1, 2, 3, 7, 32, 33, 63, 70])
def test_valid_proofs_are_accepted_and_changed_proofs_refused(size: int) -> None:
    tree = MerkleTree(MANY)
    root = tree.root(size)
    assert root == defined(MANY[:size]) == tree.peaks(size).root
    for index in range(size):
        path = tree.inclusion_proof(index, size)
        assert is_included(MANY[index], index, size, path, root)
        assert not is_included(MANY[index], index, size, [*path, bytes(32)], root)
        assert not is_included(MANY[index], index, size, path[:-1], root) or not path
        assert not is_included(MANY[(index + 1) % 70], index, size, path, root)
        assert not is_included(MANY[index], index + 1, size, path, root)
    for first in range(1, size):
        path, before = tree.consistency_proof(first, size), tree.root(first)
        assert is_consistent(first, before, size, root, path)
        assert not is_consistent(first, before, size, root, path[:-1])
        assert not is_consistent(first, before, size, root, [*path, bytes(32)])
        assert not is_consistent(first, bytes(32), size, root, path)
        assert not is_consistent(first, before, size, bytes(32), path)
    assert is_consistent(size, root, size, root, [])
    assert not is_consistent(0, EMPTY_ROOT, size, root, [])
    assert not is_included(MANY[0], -1, size, [], root)


def test_peaks_grow_as_the_tree_does() -> None:
    tree, peaks = MerkleTree(MANY), Peaks(0, [])
    for size, leaf in enumerate(MANY, 1):
        assert peaks.add(leaf).root == tree.root(size)
    with pytest.raises(ValueError, match="subtree"):
        Peaks(3, [bytes(32)])
