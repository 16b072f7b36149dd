"""Bytes as strangers send them: random bytes, and valid documents that are damaged."""

from hypothesis import strategies as st

_NUMBERS = [
    b"\xcb\x7f\xf8\x00\x00\x00\x00\x00\x00",  # NaN, infinities and the largest numbers, in msgpack
    b"\xcb\x7f\xf0\x00\x00\x00\x00\x00\x00",
    b"\xcb\xff\xf0\x00\x00\x00\x00\x00\x00",
    b"\xcf" + b"\xff" * 8,
    b"\xd3\x80" + bytes(7),
    b"NaN",
    b"Infinity",
    b"-1e999",
    b"nan",
    b"inf",
    b"9" * 400,
    b"9" * 5000,
]
_LENGTHS = [
    b"\xdd\xff\xff\xff\xff",
    b"\xc6\xff\xff\xff\xff",
    b"\xdf\x7f\xff\xff\xff",
    b"\xdb\x00\xff\xff\xff",
    b"\xc9" * 6,
]
"""Lengths of what does not follow."""
_DEPTHS = [b"\x91", b"[", b'{"a":', b"\x81\xa1a", b"[[", b"a.", b"{a="]
_SIGNS = "— é\u2028\ud7ff".encode()


def mutated(valid: list[bytes]) -> st.SearchStrategy[bytes]:
    """Anything; or a valid example with up to four damages."""
    damages = st.lists(_damage(valid), min_size=1, max_size=4)
    return st.one_of(st.binary(max_size=400), st.builds(_damaged, st.sampled_from(valid), damages))


def _damaged(body: bytes, damages: list[tuple[int, int, bytes]]) -> bytes:
    for place, length, replacement in damages:
        start = place % (len(body) + 1)
        body = body[:start] + replacement + body[start + length :]
    return body


def _damage(valid: list[bytes]) -> st.SearchStrategy[tuple[int, int, bytes]]:
    """Return damages: the position and number of the bytes to remove, and their replacement."""
    place, short_length = st.integers(0, 1 << 16), st.integers(0, 40)
    parts = st.builds(_part, st.sampled_from(valid), place, st.integers(1, 300))
    others = st.one_of(
        st.binary(max_size=4),
        parts,
        st.sampled_from([*_NUMBERS, *_LENGTHS, _SIGNS]),
        st.builds(lambda pattern, times: pattern * times, st.sampled_from(_DEPTHS), st.integers(1, 3000)),
        st.builds(lambda pattern, times: pattern * times, st.binary(min_size=1, max_size=2), st.integers(1, 20_000)),
    )
    return st.one_of(
        st.tuples(place, st.just(1), st.binary(min_size=1, max_size=1)),  # a byte is another one
        st.tuples(place, st.just(1 << 30), st.just(b"")),  # the end is missing
        st.tuples(place, short_length, others),
    )


def _part(body: bytes, place: int, length: int) -> bytes:
    start = place % (len(body) or 1)
    return body[start : start + length]
