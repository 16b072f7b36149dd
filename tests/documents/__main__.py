"""Write the documents that are made from the code; tests fail where the files differ."""

from tests.documents import (
    addresses,
    commands,
    endpoints,
    exports,
    families,
    logs,
    notebook,
    offline,
    openapi,
    schemas,
    tokens,
    uploads,
    vectors,
)

MADE = (
    addresses,
    openapi,
    vectors,
    uploads,
    tokens,
    exports,
    offline,
    schemas,
    logs,
    commands,
    endpoints,
    families,
    notebook,
)

for path, text in (page for one in MADE for page in one.documents().items()):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
