"""Whatever strangers send is read as what it is written again as, or refused with a `PrivateerError`.

Nothing takes long, or much memory. A few hundred damaged examples a decoder here, and tens of thousands every night.
"""

import math
import time
import tracemalloc
from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings

from privateer_core.errors import PrivateerError
from tests.fuzz.decoders import DECODERS
from tests.fuzz.mutations import mutated

SECONDS = 2.0
"""Of the processor, for one example."""
BYTES = 80 << 20
"""The lab sets 64 MiB aside for a file."""
QUICK, NIGHTLY = 40, 10_000


def tried(read: Callable[[bytes], bytes], some: bytes) -> None:
    """Read bytes; if they are taken, what they are written as is read as the same."""
    began = time.process_time()
    tracemalloc.start()
    try:
        written = read(some)
    except PrivateerError:
        return
    finally:
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert most < BYTES + 20 * len(some), f"{most} bytes of memory"
        assert time.process_time() - began < SECONDS, "it takes long"
    with suppress(PrivateerError):  # where a text is no document, nothing is written
        assert read(written) == written


def fuzzed(name: str, examples: int, number: int) -> None:
    decoder = DECODERS[name]
    valid = decoder.valid()
    for one in valid:
        tried(decoder.read, one)
    given_ = settings(
        max_examples=math.ceil(examples / decoder.costly),
        derandomize=False,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        print_blob=True,
        phases=[Phase.generate, Phase.shrink],
    )

    @seed(number)
    @given_
    @given(mutated(valid))
    def check(some: bytes) -> None:
        tried(decoder.read, some)

    check()


@pytest.mark.parametrize("name", DECODERS)
def test_valid_bytes_are_read_and_written_again(name: str) -> None:
    decoder = DECODERS[name]
    for one in decoder.valid():
        written = decoder.read(one)
        if name != "problem":
            assert decoder.read(written if written.startswith(one[:1]) else one)


@pytest.mark.parametrize("name", DECODERS)
def test_damaged_bytes_are_refused_or_read(name: str) -> None:
    fuzzed(name, QUICK, 1)


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", DECODERS)
def test_damaged_bytes_are_refused_or_read_every_night(name: str) -> None:
    fuzzed(name, NIGHTLY, 2)


def test_another_exception_is_found() -> None:
    """A planted defect: a reader that trusts a length."""

    def trusting(some: bytes) -> bytes:
        if len(some) < 8 or some[0] != 1:
            raise PrivateerError("too short")
        return some[: [8, 16, 24][some[1]]]

    DECODERS["trusting"] = type(DECODERS["batch"])(lambda: [b"\x01\x00" + bytes(22)], trusting)
    try:
        with pytest.raises(IndexError):
            fuzzed("trusting", QUICK * 4, 1)
    finally:
        del DECODERS["trusting"]
