"""Write what is made from the code: everything, or the documents that the command names, as ``commands openapi``."""

import sys
from types import ModuleType

from tests.documents import (
    addresses,
    claims,
    commands,
    endpoints,
    imports,
    monitoring,
    notebook,
    openapi,
    schemas,
    settings,
    states,
    wire,
)

MADE: dict[str, ModuleType] = {
    "addresses": addresses,
    "openapi": openapi,
    "wire": wire,
    "schemas": schemas,
    "claims": claims,
    "commands": commands,
    "settings": settings,
    "endpoints": endpoints,
    "notebook": notebook,
    "states": states,
    "imports": imports,
    "monitoring": monitoring,
}

for name in sys.argv[1:] or MADE:
    for path, text in MADE[name].documents().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
