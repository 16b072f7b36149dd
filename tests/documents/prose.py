"""The prose linter: proselint's checks and a few rules of our own, on all that people read.

It reads the pages of the documentation, first lines of docstrings, what commands and settings say of themselves, and
messages of errors. The rules are in `prose.toml`. `python -m tests.documents.prose [FILE ...]` prints the findings and
ends with 1 if there are any.
"""

import ast
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from markdown_it import MarkdownIt
from markdown_it.token import Token
from proselint.checks import __register__
from proselint.config import DEFAULT
from proselint.registry import CheckRegistry
from proselint.tools import LintFile

ROOT: Final = Path(__file__).parents[2]
RULES: Final = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())
DISTRIBUTIONS: Final = ("shared", "client", "shuffler", "issuer", "server", "lab", "papers")

_CODE: Final = "Code"
"""What stands for code and formulas: a word that no rule knows."""
_FORMULA: Final = re.compile(r"(`+.+?`+)|\$\$.+?\$\$|\$(?=[^\s$])[^$`\n]*?(?<=\S)\$(?!\w)", re.DOTALL)
_SENTENCE_END: Final = re.compile(r"(?<=[.?!])[)\"']*\s+(?=[A-Z(\"'`\d])")
_WORD: Final = re.compile(r"[A-Za-z0-9][\w'./-]*")
_DOUBLED: Final = re.compile(r"\b([a-z]+)\s+\1\b", re.IGNORECASE)
_ABBREVIATION: Final = re.compile(r"(?<![\w.-])[A-Z]{2,6}(?![\w-])")
_ASIDE: Final = re.compile(r"(?<=\s)\(")
_RIDDLE: Final = re.compile(r"(?:What|Who|Whom|Whoever)\b.*\.$", re.DOTALL)
_SAID_IN: Final = {"help", "description", "remedy", "detail"}
"""Names of arguments and variables whose text people read."""


@dataclass(frozen=True)
class Text:
    """A piece of prose: a paragraph, a cell, a message, the first line of a docstring."""

    place: str
    words: str
    is_running: bool = False
    """Whether it is running text, in which sentences have subjects and verbs: no cell, no heading, no docstring."""


def pages() -> list[Path]:
    """Every page that is written by hand."""
    hand_written = [*sorted((ROOT / "docs").rglob("*.md")), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
    return [page for page in hand_written if str(page.relative_to(ROOT)) not in RULES["made"]]


def sources() -> list[Path]:
    """Every module that is installed."""
    return [
        path
        for distribution in DISTRIBUTIONS
        for path in sorted((ROOT / distribution).rglob("*.py"))
        if "build" not in path.parts
    ]


def of_page(text: str, name: str) -> Iterator[Text]:
    """The prose of a page in Markdown, without its code and formulas."""
    opened, line = "", 0
    for token in MarkdownIt().enable("table").parse(_FORMULA.sub(lambda match: match[1] or _CODE, text)):
        if token.type == "inline":
            yield Text(f"{name}:{line}", _plain_text(token.children or []), opened == "paragraph_open")
        else:
            opened, line = token.type, token.map[0] + 1 if token.map else line


def _plain_text(tokens: Iterable[Token]) -> str:
    marks = {"softbreak": " ", "hardbreak": " ", "code_inline": _CODE}
    return "".join(marks.get(token.type, token.content if token.type in ("text", "image") else "") for token in tokens)


def of_module(text: str, name: str) -> Iterator[Text]:
    """What a module says to people: docstrings, help texts, errors."""
    for node in ast.walk(ast.parse(text)):
        for prose in _texts_of_node(node):
            line = getattr(node, "lineno", 1)
            yield Text(f"{name}:{line}", re.sub(r"``.*?``|`.*?`", _CODE, " ".join(prose.split())))


def _texts_of_node(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        docstring = ast.get_docstring(node) or ""
        is_help = any("command" in ast.unparse(decorator) for decorator in getattr(node, "decorator_list", ()))
        yield from docstring.split("\n\n")[: None if is_help else 1]
    elif isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
        yield from filter(None, map(_constant, node.exc.args))
    elif (isinstance(node, ast.keyword) and node.arg in _SAID_IN) or (
        isinstance(node, ast.Assign) and any(getattr(target, "id", "") in _SAID_IN for target in node.targets)
    ):
        yield _constant(node.value)


def _constant(node: ast.expr) -> str:
    """The text of a literal, in which values are stood for."""
    if isinstance(node, ast.JoinedStr):
        return "".join(map(_constant, node.values))
    if isinstance(node, ast.FormattedValue):
        return _CODE
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def findings(texts: list[Text]) -> Iterator[str]:
    """What is wrong with a page or the texts of a module, as ``place: rule: words``."""
    known_abbreviations = set(RULES["abbreviations"]) | {
        word for text in texts for word in re.findall(r"\(([A-Z]{2,6})\)", text.words)
    }
    for text in texts:
        for finding in (*_sentences(text), *_phrases(text.words), *_unknown(text.words, known_abbreviations)):
            yield f"{text.place}: {finding}"
    yield from _proselint(texts)


def _sentences(text: Text) -> Iterator[str]:
    for sentence in _SENTENCE_END.split(text.words):
        count = len(_WORD.findall(sentence))
        if count > RULES["longest"]:
            yield f"a sentence of {count} words, more than {RULES['longest']}: {sentence[:70]}..."
        if text.is_running and (sentence.count(";") > 1 or len(_ASIDE.findall(sentence)) > 2):
            yield f"more than two asides in a sentence: {sentence[:70]}..."
        if text.is_running and count > 6 and _RIDDLE.match(sentence):
            yield f"a sentence that hides its subject, begin with a noun: {sentence[:70]}..."


def _phrases(words: str) -> Iterator[str]:
    for match in _DOUBLED.finditer(words):
        if match[1].lower() not in RULES["may_repeat"] and match[1] != _CODE:
            yield f"doubled word: {match[0]}"
    for pattern, better in RULES["instead"].items():
        for match in re.finditer(rf"\b(?:{pattern})(?!\w)", words, re.IGNORECASE):
            yield f"'{match[0]}': {better}"


def _unknown(words: str, known_abbreviations: set[str]) -> Iterator[str]:
    for name in _ABBREVIATION.findall(words):
        if name not in known_abbreviations:
            yield f"'{name}' stands for nothing yet: write it out, with ({name}) behind"


def _proselint(texts: list[Text]) -> Iterator[str]:
    registry = CheckRegistry()
    if not registry.checks:
        registry.register_many(__register__)
    enabled = {"max_errors": 1000, "checks": DEFAULT["checks"] | dict.fromkeys(RULES["not_checked"], False)}
    lines = [text.words.replace("\n", " ") for text in texts]
    for match in LintFile("", "\n".join(lines) or " ").lint(enabled):  # type: ignore[arg-type]
        result = match.check_result
        yield f"{texts[max(match.pos[0] - 1, 0)].place}: {result.check_path}: {result.message}"


def length(texts: list[Text], name: str) -> Iterator[str]:
    """Find a page that is too long to be read; what is looked up may be longer."""
    count = sum(len(text.words.split()) for text in texts)
    if count > RULES["longest_page"] and name not in RULES["looked_up"]:
        yield f"{name}: a page of {count} words, more than {RULES['longest_page']}: divide it"


def check(path: Path) -> list[str]:
    """All findings of a file."""
    name, text = str(path.relative_to(ROOT)), path.read_text()
    texts = list(of_page(text, name) if path.suffix == ".md" else of_module(text, name))
    return [*findings(texts), *(length(texts, name) if path.suffix == ".md" else ())]


def main(named: list[str]) -> int:
    """Print the findings of the files that are named, or of all."""
    paths = [Path(name).resolve() for name in named] or [*pages(), *sources()]
    findings_of_paths = [finding for path in paths for finding in check(path)]
    print("\n".join(findings_of_paths) or "prose: no findings")
    return bool(findings_of_paths)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
