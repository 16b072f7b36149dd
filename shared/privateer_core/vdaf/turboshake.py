"""TurboSHAKE128 (RFC 9861), the hash of Prio3's seeds and shares."""

from typing import Final

try:
    from Crypto.Hash import TurboSHAKE128
except ImportError:  # pycryptodome is optional: without it devices hash some hundred times as long, 30 ms a report
    _HAS_LIBRARY = False
else:
    _HAS_LIBRARY = True

SEED_BYTES: Final = 32
_RATE_BYTES: Final = 168
_DOMAIN: Final = 1
_MASK: Final = (1 << 64) - 1
_ROTATIONS: Final = (0, 1, 62, 28, 27, 36, 44, 6, 55, 20, 3, 10, 43, 25, 39, 41, 45, 15, 21, 8, 18, 2, 61, 56, 14)
"""Bits by which rho rotates lane x + 5 y (FIPS 202, table 2)."""
_ROUND_CONSTANTS: Final = (
    0x000000008000808B, 0x800000000000008B, 0x8000000000008089, 0x8000000000008003,
    0x8000000000008002, 0x8000000000000080, 0x000000000000800A, 0x800000008000000A,
    0x8000000080008081, 0x8000000000008080, 0x0000000080000001, 0x8000000080008008,
)  # fmt: skip
"""Round constants of the last twelve rounds of Keccak-f[1600], the rounds of TurboSHAKE."""


def turboshake128(message: bytes, n_bytes: int) -> bytes:
    """Hash a message to a number of bytes, with the domain byte that Prio3 uses."""
    if not _HAS_LIBRARY:
        return hash_with_integers(message, n_bytes)
    return TurboSHAKE128.new(domain=_DOMAIN).update(message).read(n_bytes)


def hash_with_integers(message: bytes, n_bytes: int) -> bytes:
    """Hash as `turboshake128` does, without a library."""
    padded = bytearray(message + bytes([_DOMAIN]))
    padded += bytes(-len(padded) % _RATE_BYTES)
    padded[-1] ^= 0x80
    state = [0] * 25
    for start in range(0, len(padded), _RATE_BYTES):
        for lane in range(_RATE_BYTES // 8):
            state[lane] ^= int.from_bytes(padded[start + 8 * lane : start + 8 * lane + 8], "little")
        state = _permute(state)
    output = bytearray()
    while len(output) < n_bytes:
        output += b"".join(lane.to_bytes(8, "little") for lane in state[: _RATE_BYTES // 8])
        state = _permute(state)
    return bytes(output[:n_bytes])


def _permute(state: list[int]) -> list[int]:
    """Apply twelve rounds: theta, rho, pi, chi and iota."""
    for constant in _ROUND_CONSTANTS:
        columns = [state[x] ^ state[x + 5] ^ state[x + 10] ^ state[x + 15] ^ state[x + 20] for x in range(5)]
        mixed = [columns[x - 1] ^ _rotate(columns[(x + 1) % 5], 1) for x in range(5)]
        moved = [0] * 25
        for lane in range(25):
            x, y = lane % 5, lane // 5
            moved[y + 5 * ((2 * x + 3 * y) % 5)] = _rotate(state[lane] ^ mixed[x], _ROTATIONS[lane])
        state = [
            moved[lane] ^ (~moved[lane - lane % 5 + (lane + 1) % 5] & moved[lane - lane % 5 + (lane + 2) % 5])
            for lane in range(25)
        ]
        state[0] ^= constant
    return state


def _rotate(lane: int, n_bits: int) -> int:
    return (lane << n_bits | lane >> (64 - n_bits)) & _MASK
