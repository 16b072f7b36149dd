"""Votes of each kind of circuit, and their shares."""

import os
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from privateer_core.vdaf.circuits import Circuit, ball, blocks, box, encode_number, histogram, multihot, simplex
from privateer_core.vdaf.prio3 import NONCE_BYTES, Prio3, ReportShares

KEY, CONTEXT, ALGORITHM = bytes(range(32)), b"experiment, round and policy", 0xFFFF0001
RADIUS = 40 * 40


@dataclass(frozen=True)
class Kind:
    """A circuit with valid votes: bits, and what they add to the sum."""

    circuit: Circuit
    votes: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]

    @property
    def prio3(self) -> Prio3:
        return Prio3(self.circuit, ALGORITHM)


def encode_numbers(numbers: Sequence[int], maximum: int) -> tuple[int, ...]:
    return tuple(bit for number in numbers for bit in encode_number(number, maximum))


def encode_in_ball(numbers: Sequence[int], maximum: int, squared_radius: int) -> tuple[int, ...]:
    squared = sum((2 * number - maximum) ** 2 for number in numbers)
    return (*encode_numbers(numbers, maximum), *encode_number(squared, squared_radius))


def one_hot(length: int, *cells: int) -> tuple[int, ...]:
    return tuple(int(cell in cells) for cell in range(length))


def make_kinds() -> dict[str, Kind]:
    rng = np.random.default_rng(59)
    cells = [one_hot(21, int(cell)) for cell in rng.integers(21, size=5)]
    pairs = [one_hot(9, int(cell), 4 + int(other)) for cell, other in zip(*rng.integers(4, size=(2, 5)), strict=True)]
    subsets = [one_hot(11, *map(int, rng.permutation(11)[:count])) for count in (0, 1, 2, 3, 3)]
    numbers = [tuple(map(int, row)) for row in rng.integers(0, 11, size=(5, 8))]
    parts = [tuple(map(int, row)) for row in rng.multinomial(20, [0.25] * 4, size=5)]
    near = [tuple(map(int, row)) for row in rng.integers(8, 24, size=(5, 6))]
    outputs = {"near": [tuple(2 * number for number in row) for row in near]}
    return {
        "histogram": Kind(histogram(21), tuple((row, row) for row in cells)),
        "blocks": Kind(blocks((4, 5)), tuple((row, row) for row in pairs)),
        "multihot": Kind(multihot(11, 3), tuple(((*row, *encode_number(sum(row), 3)), row) for row in subsets)),
        "box": Kind(box(8, 10), tuple((encode_numbers(row, 10), row) for row in numbers)),
        "simplex": Kind(simplex(4, 20), tuple((encode_numbers(row, 20), row) for row in parts)),
        "ball": Kind(
            ball(6, 31, RADIUS),
            tuple((encode_in_ball(row, 31, RADIUS), output) for row, output in zip(near, outputs["near"], strict=True)),
        ),
    }


KINDS = make_kinds()


def shard(prio3: Prio3, bits: Sequence[int], nonce: bytes, context: bytes = CONTEXT) -> ReportShares:
    return prio3.shard(context, bits, nonce, os.urandom(prio3.random_bytes))


def make_nonces(n: int) -> list[bytes]:
    return [os.urandom(NONCE_BYTES) for _ in range(n)]
