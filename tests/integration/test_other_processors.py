"""What one processor computed holds on another one: records, publications and certificates, either way.

Processes get the arithmetic of other processors by environment variables: BLAS' kernels, and with those of an old
processor numpy's and the C library's functions as well.
"""

import json
import os
import subprocess
import sys
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from privateer_core.errors import SpecError
from tests.contract.subjects import specs
from tests.support.batteries import sample
from tests.support.other_processor import everything, verify
from tests.support.processors import arithmetic, kernels, old

ROOT = Path(__file__).parents[2]
RUNNING = "linear-central"
NAMES = {name: {spec.algorithm.name, spec.privacy.model} for name, spec in specs().items()}
BY_DAY = sorted({RUNNING, *sample(NAMES, "other processors")})
"""Every algorithm and trust model."""
KINDS = {"old": old(), **{name: kernels(name) for name in ("Haswell", "Sandybridge", "Prescott", "SkylakeX")}}


@cache
def here(*names: str) -> dict[str, Any]:
    """What this process publishes, as JSON brings it."""
    return dict(json.loads(json.dumps(everything(list(names)))))


@cache
def there(kind: str, *names: str) -> dict[str, Any]:
    """What a process of another kind publishes, after it verified what this one does; skips where kinds are one."""
    found = subprocess.run(
        [sys.executable, "-m", "tests.support.other_processor"],
        input=json.dumps(here(*names)["documents"]),
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=os.environ | KINDS[kind],
    )
    assert not found.returncode, found.stderr[-2000:]
    made: dict[str, Any] = json.loads(found.stdout)
    if made["arithmetic"] == arithmetic():
        pytest.skip(f"this machine computes as {kind} does")
    return made


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("old", BY_DAY),
        *[
            pytest.param(kind, list(specs()), marks=[pytest.mark.nightly, pytest.mark.timeout(900)], id=f"{kind}-all")
            for kind in KINDS
        ],
    ],
)
def test_what_is_published_on_one_holds_on_the_other(kind: str, names: list[str]) -> None:
    for name, document in there(kind, *names)["documents"].items():
        verify(name, document)


@pytest.mark.parametrize("kind", [pytest.param(one, marks=[pytest.mark.nightly] * (one != "old")) for one in KINDS])
def test_noise_and_sensitivity_are_the_same_to_the_last_digit(kind: str) -> None:
    """Planted: norms by BLAS differ."""
    other = there(kind, *BY_DAY)
    assert other["sensitivities"] == here(*BY_DAY)["sensitivities"]
    assert other["norms"] != here(*BY_DAY)["norms"]


@pytest.mark.parametrize(("factor", "accepted"), [(1 + 1e-9, True), (1 - 1e-9, True), (1 + 1e-5, False)])
def test_events_may_differ_in_their_last_digits_alone(factor: float, accepted: bool) -> None:
    """A record of a machine whose sensitivity is another one; planted: one that is really another."""
    document = deepcopy(here(*BY_DAY)["documents"][RUNNING])
    for record in document["records"]:
        record["certificate"]["claims"][0]["event"]["sensitivity"] *= factor
    if accepted:
        verify(RUNNING, document)
        return
    with pytest.raises(SpecError, match="does not cover it") as refused:
        verify(RUNNING, document)
    assert refused.value.field.endswith("planned.mechanism")
