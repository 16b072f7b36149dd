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


def check_round_trip(read: Callable[[bytes], bytes], body: bytes) -> None:
    """Read bytes, and check that their encoding is read as the same document, within limits of time and memory."""
    began = time.process_time()
    tracemalloc.start()
    try:
        encoded = read(body)
    except PrivateerError:
        return
    finally:
        _, peak_bytes = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak_bytes < BYTES + 20 * len(body), f"{peak_bytes} bytes of memory"
        assert time.process_time() - began < SECONDS, "it takes long"
    with suppress(PrivateerError):  # where a text is no document, nothing is written
        assert read(encoded) == encoded


def fuzz_decoder(name: str, examples: int, number: int) -> None:
    decoder = DECODERS[name]
    valid = decoder.valid()
    for example in valid:
        check_round_trip(decoder.read, example)
    run_settings = settings(
        max_examples=math.ceil(examples / decoder.costly),
        derandomize=False,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        print_blob=True,
        phases=[Phase.generate, Phase.shrink],
    )

    @seed(number)
    @run_settings
    @given(mutated(valid))
    def check(body: bytes) -> None:
        check_round_trip(decoder.read, body)

    check()


@pytest.mark.parametrize("name", DECODERS)
def test_valid_bytes_are_read_and_written_again(name: str) -> None:
    decoder = DECODERS[name]
    for example in decoder.valid():
        encoded = decoder.read(example)
        if name != "problem":
            assert decoder.read(encoded if encoded.startswith(example[:1]) else example)


@pytest.mark.parametrize("name", DECODERS)
def test_damaged_bytes_are_refused_or_read(name: str) -> None:
    fuzz_decoder(name, QUICK, 1)


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", DECODERS)
def test_damaged_bytes_are_refused_or_read_every_night(name: str) -> None:
    fuzz_decoder(name, NIGHTLY, 2)


def test_an_exception_other_than_ours_is_reported() -> None:
    """A planted defect: a reader that trusts a length."""

    def read_trusting_length(body: bytes) -> bytes:
        if len(body) < 8 or body[0] != 1:
            raise PrivateerError("too short")
        return body[: [8, 16, 24][body[1]]]

    DECODERS["trusting"] = type(DECODERS["batch"])(lambda: [b"\x01\x00" + bytes(22)], read_trusting_length)
    try:
        with pytest.raises(IndexError):
            fuzz_decoder("trusting", QUICK * 4, 1)
    finally:
        del DECODERS["trusting"]
