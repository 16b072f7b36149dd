"""The page of reviews: its commands, its file of facts, its table of keys and its snippet work."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import msgspec

from privateer_core.answer.export import FORMAT, Export
from privateer_lab.pages.review.subject import SECTORS, Facts, read_facts
from tests.docs.test_readme import blocks, execute
from tests.documents import exports, schemas, vectors

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "review.md").read_text()


def test_the_commands_work(tmp_path: Path) -> None:
    lines = [line for block in blocks("sh", PAGE) for line in block.splitlines()]
    assert lines
    for line in lines:
        assert "review.html" in execute(f".venv/bin/{line.replace('--out ', f'--out {tmp_path}/')}", dict(os.environ))
    files = set(re.findall(r"^\| `([a-z.]+)` \|", PAGE, re.MULTILINE))
    assert files >= {path.name for path in (tmp_path / "review").iterdir()} == {
        "review.html", "review.json", "record.json", "registry.yaml",
    }  # fmt: skip


def test_the_facts_of_the_page_are_all_that_there_are(tmp_path: Path) -> None:
    (text,) = blocks("toml", PAGE)
    assert set(tomllib.loads(text)) == set(Facts.__struct_fields__)
    assert all(sector in text for sector in SECTORS)
    file = tmp_path / "facts.toml"
    file.write_text(text)
    assert read_facts(file).publication_date == "2026-11-01"


def test_every_key_of_an_export_is_on_the_page() -> None:
    table = PAGE.partition("## The export")[2]
    assert all(f"`{name}`" in table for name in Export.__struct_fields__)
    assert FORMAT in table
    assert FORMAT in (ROOT / "docs" / "foreign-clients.md").read_text()


def test_the_snippet_decides(tmp_path: Path) -> None:
    _, spec, body = vectors.cases()[0]
    (tmp_path / "peaks-shuffle.json").write_bytes(msgspec.json.encode(exports.build_export(spec, body)))
    (snippet,) = blocks("python", PAGE)
    process = subprocess.run(
        [sys.executable, "-c", f"{snippet}\nprint(arm, again)"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert process.returncode == 0, process.stderr
    assert set(process.stdout.split()) <= set(spec.options)


def test_the_schema_names_what_the_page_shows() -> None:
    properties = schemas.review()["$defs"]["Review"]["properties"]
    assert set(properties) >= {"parties", "claims", "evidence", "kept", "points", "registry", "unknown", "record"}
