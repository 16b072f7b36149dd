"""Records, publications and certificates of one processor are valid on another, either way.

Processes get the arithmetic of other processors by environment variables: BLAS' kernels, and with those of an old
processor numpy's and the C library's functions as well.
"""

import json
import os
import subprocess
import sys
from copy import deepcopy
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from privateer_core.errors import SpecError
from privateer_core.spec.spec import Spec
from tests.contract.subjects import specs
from tests.support.batteries import sample
from tests.support.other_processor import everything, verify
from tests.support.processors import arithmetic, kernels, old_processor
from tests.support.random_specs import draw_specs

ROOT = Path(__file__).parents[2]
RUNNING = "linear-central"
NAMES = {name: (spec.algorithm.name, spec.privacy.model) for name, spec in specs().items()}
BY_DAY = sorted({RUNNING, *sample({name: set(kind) for name, kind in NAMES.items()}, "other processors")})
"""Every algorithm and trust model."""
RANDOM = 3
"""Random specs of each of them."""
KINDS = {"old": old_processor(), **{name: kernels(name) for name in ("Haswell", "Sandybridge", "Prescott", "SkylakeX")}}


@cache
def random_specs() -> dict[str, Spec]:
    """Specs of every algorithm but those of papers, and trust model, by name."""
    kinds = {kind for kind in NAMES.values() if not kind[0].startswith("paper-")}
    drawn = {f"{name}-{model}": islice(draw_specs(name, model, 50), RANDOM) for name, model in sorted(kinds)}
    return {f"{kind}-{index}": spec for kind, specs in drawn.items() for index, spec in enumerate(specs)}


@cache
def local_documents(*names: str) -> dict[str, Any]:
    """What this process publishes, as JSON brings it."""
    known = specs() if names[0] in specs() else random_specs()
    return dict(json.loads(json.dumps(everything({name: known[name] for name in names}))))


@cache
def other_documents(kind: str, *names: str) -> dict[str, Any]:
    """Return the documents of a process of another kind, which verified this process's; skip if kinds are equal."""
    process = subprocess.run(
        [sys.executable, "-m", "tests.support.other_processor"],
        input=json.dumps(local_documents(*names)["documents"]),
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=os.environ | KINDS[kind],
    )
    assert not process.returncode, process.stderr[-2000:]
    document: dict[str, Any] = json.loads(process.stdout)
    if document["arithmetic"] == arithmetic():
        pytest.skip(f"this machine computes as {kind} does")
    return document


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
def test_publications_of_one_processor_are_valid_on_another(kind: str, names: list[str]) -> None:
    for document in other_documents(kind, *names)["documents"].values():
        verify(document)


@pytest.mark.nightly
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", KINDS)
def test_publications_of_random_specs_are_valid_on_another(kind: str) -> None:
    for document in other_documents(kind, *random_specs())["documents"].values():
        verify(document)


@pytest.mark.parametrize("kind", [pytest.param(kind, marks=[pytest.mark.nightly] * (kind != "old")) for kind in KINDS])
def test_noise_and_sensitivity_are_the_same_to_the_last_digit(kind: str) -> None:
    """Planted: norms by BLAS differ."""
    other = other_documents(kind, *BY_DAY)
    assert other["sensitivities"] == local_documents(*BY_DAY)["sensitivities"]
    assert other["norms"] != local_documents(*BY_DAY)["norms"]


@pytest.mark.parametrize(("factor", "accepted"), [(1 + 1e-9, True), (1 - 1e-9, True), (1 + 1e-5, False)])
def test_events_may_differ_in_their_last_digits_alone(factor: float, accepted: bool) -> None:
    """A record of a machine whose sensitivity differs in the last digits; planted: a larger difference."""
    document = deepcopy(local_documents(*BY_DAY)["documents"][RUNNING])
    for record in document["records"]:
        record["certificate"]["claims"][0]["event"]["sensitivity"] *= factor
    if accepted:
        verify(document)
        return
    with pytest.raises(SpecError, match="does not cover it") as refused:
        verify(document)
    assert refused.value.field.endswith("planned.mechanism")
