#!/usr/bin/env bash
# griffelib 2.4.1 (which mkdocstrings reads docstrings with) and msgspec 0.23.0: a msgspec.Struct is declared as typing.dataclass_transform says (PEP 681).
# Expected: its fields are the parameters of its constructor, as those of a dataclass are, so that a "Parameters" section is about them.
# Observed: a dataclass has its constructor's parameters, a Struct none, so the same docstring is warned of: "does not appear in the function signature",
# and a strict build of a documentation site fails for every Struct that documents its fields in NumPy's way.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --quiet --disable-pip-version-check install griffelib==2.4.1 msgspec==0.23.0
cat > "$folder/shapes.py" <<'PYTHON'
from dataclasses import dataclass

import msgspec

@dataclass
class Plain:
    """A circle.

    Parameters
    ----------
    radius
        In metres.
    """

    radius: float

class Packed(msgspec.Struct):
    """A circle.

    Parameters
    ----------
    radius
        In metres.
    """

    radius: float
PYTHON
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import inspect
import logging
import sys

import griffe

sys.path.insert(0, ".")
import shapes

assert list(inspect.signature(shapes.Plain).parameters) == list(inspect.signature(shapes.Packed).parameters) == ["radius"]
messages: list[str] = []

class Keep(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        messages.append(record.getMessage())

logging.getLogger("griffe").addHandler(Keep())
module = griffe.load("shapes", search_paths=["."])
for name in ("Plain", "Packed"):
    messages.clear()
    shape = module[name]
    shape.docstring.parse("numpy")
    print(name, [one.name for one in shape.parameters], messages)
    told = any("does not appear in the function signature" in one for one in messages)
    assert told == (name == "Packed"), "the behaviour has changed"
PYTHON
