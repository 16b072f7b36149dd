"""Fuzzes a decoder, guided by the branches that inputs reach: ``python -m tests.fuzz.guided NAME RUNS FOLDER``.

The folder gets the inputs that reach something new, and one that fails. It needs atheris (requirements/fuzz.txt).
"""

import sys
from pathlib import Path

import atheris

from privateer_core.errors import PrivateerError

with atheris.instrument_imports(include=["privateer_core", "privateer_client", "privateer_lab", "privateer_server"]):
    from tests.fuzz.decoders import DECODERS, Decoder

from tests.fuzz.test_decoders import check_round_trip

PLANTED = "planted"


@atheris.instrument_func  # type: ignore[untyped-decorator]
def _read_trusting_index(body: bytes) -> bytes:
    """Read bytes behind four signs, each of which only who has the ones before gets to know."""
    for place, sign in enumerate(b"seal"):
        if len(body) <= place or body[place] != sign:
            raise PrivateerError("no seal")
    return body[[0, 1][len(body) - 4] :]


def fuzz(name: str, runs: int, folder: Path) -> None:
    """Fuzz a decoder from its valid examples; end the process, with an exit code other than 0 at a failure."""
    decoder = DECODERS.get(name) or Decoder(lambda: [b"xxxx"], _read_trusting_index)
    for number, example in enumerate(decoder.valid()):
        (folder / f"valid-{number}").write_bytes(example)
    options = [f"-runs={runs // decoder.costly}", "-seed=1", "-rss_limit_mb=4096", f"-artifact_prefix={folder}/"]
    atheris.Setup(["guided", *options, str(folder)], lambda body: check_round_trip(decoder.read, body))
    atheris.Fuzz()


if __name__ == "__main__":
    fuzz(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
