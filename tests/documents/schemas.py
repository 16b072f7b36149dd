"""The JSON schema of a review, for whoever reads reviews by machine."""

import json
from pathlib import Path
from typing import Any

import msgspec

from privateer_lab.pages.review.document import Review

FILE = Path("docs/review.schema.json")


def documents() -> dict[Path, str]:
    """The text of the file."""
    return {FILE: json.dumps(review(), indent=1) + "\n"}


def review() -> dict[str, Any]:
    """The schema of `Review`."""
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **msgspec.json.schema(Review)}
    # Python's end of a text is $ in the regular expressions of JSON schemas.
    return dict(json.loads(json.dumps(schema).replace(r"\\Z", "$")))
