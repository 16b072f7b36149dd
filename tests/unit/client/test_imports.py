"""The modules that a device imports are listed, so that it loads no module that it does not need."""

import json

from tests.documents import imports

LATE = ("answer", "wire.attestation", "wire.blind_rsa", "wire.token", "store", "serving", "algorithms.")
"""A device loads no results, upload tokens or services of the core, and no algorithm until an experiment names it."""


def test_a_device_imports_the_listed_modules_alone() -> None:
    listed = json.loads(imports.LIST.read_text())
    assert imports.loaded() == listed, "if it has to: python -m tests.documents imports"
    assert listed["packages"] == ["cryptography", "msgspec", "numpy", "pydantic"]
    core = [name.removeprefix("privateer_core.") for name in listed["import"]]
    assert [name for name in core if name.startswith(LATE)] == []
    algorithms = {name for name in listed["first choice"] if name.startswith("privateer_core.algorithms.")}
    assert {name.split(".")[2] for name in algorithms} == {"partition"}
