"""No code branches on an algorithm's name, and no code outside the table of trust models names a trust model.

That nobody imports an algorithm's own files is a contract of import-linter (pyproject.toml).
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from privateer_core.algorithms import ALGORITHMS as INSTALLED
from privateer_core.privacy.trust import TRUST

ROOT = Path(__file__).parents[2]
ROLES = ("shared", "client", "shuffler", "issuer", "server", "lab")
TABLE = "shared/privateer_core/privacy/trust.py"
DASHBOARD = ROOT / "server/privateer_server/dashboard"
Files = dict[str, str]
ALGORITHMS = [name for name in INSTALLED if not name.startswith("paper-")]
"""Those of the product: the papers' are nowhere to be imported."""
OWN = re.compile(
    r"(shared/privateer_core/algorithms|server/privateer_server/algorithms|lab/privateer_lab/audit/attacks)/\w+"
)
"""Algorithms' own files."""
OTHER_MEANINGS = {
    (
        "shared/privateer_core/wire/publication.py",
        "shuffle",
    ),  # which endpoint takes a round's reports, for the shuffler
    ("shared/privateer_core/wire/publication.py", "split"),
    ("shared/privateer_core/serving/process.py", "none"),
    ("lab/privateer_lab/render/words.py", "none"),
    ("lab/privateer_lab/load/command.py", "none"),
    ("shared/privateer_core/spec/half_life.py", "none"),
}
"""Strings that are a trust model's name elsewhere: the wire's table, and another word."""


def sources() -> Files:
    """Every source file by its path in the repository, and its text."""
    paths = [path for role in ROLES for path in sorted((ROOT / role).rglob("*.py"))]
    return {path.relative_to(ROOT).as_posix(): path.read_text() for path in paths}


FILES = sources()


@cache
def parse(text: str) -> ast.Module:
    """The tree of a file."""
    return ast.parse(text)


def others(files: Files) -> Iterator[tuple[str, str]]:
    """Every source file that is no algorithm's own."""
    return ((path, text) for path, text in files.items() if not OWN.match(path))


def branches(files: Files) -> list[str]:
    """Places outside their own files where a value is compared with an algorithm's name, or looked up by it."""
    places = []
    for path, text in others(files):
        for node in ast.walk(parse(text)):
            if isinstance(node, ast.Compare | ast.MatchValue | ast.Subscript):
                names = {each.value for each in ast.walk(node) if isinstance(each, ast.Constant)} & set(ALGORITHMS)
                if names and not is_a_type(node):
                    places.append(f"{path}:{node.lineno}: {ast.unparse(node)}")
    return places


def is_a_type(node: ast.AST) -> bool:
    """Whether it is a type of strings, as sections of environments have."""
    return isinstance(node, ast.Subscript) and ast.unparse(node.value) == "Literal"


def strings(tree: ast.AST) -> Iterator[ast.Constant]:
    """String constants that are not docstrings."""
    prose = {
        id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose:
            yield node


def named_models(files: Files) -> list[str]:
    """Return places outside the table and algorithms' files where a string names a trust model, or lists several."""
    places = []
    for path, text in others(files):
        if path == TABLE:
            continue
        nodes = [node for node in strings(parse(text)) if set(node.value.split(",")) <= set(TRUST)]
        places += [f"{path}:{node.lineno}: {node.value}" for node in nodes if (path, node.value) not in OTHER_MEANINGS]
    return places


def test_no_file_branches_on_an_algorithm() -> None:
    assert branches(FILES) == []


def test_no_file_names_a_trust_model() -> None:
    assert named_models(FILES) == []


def names_in_modules(files: Files) -> list[str]:
    """Places in the dashboard's modules that name an algorithm or a trust model, as a string or a key, not called."""
    names = "|".join([*ALGORITHMS, *TRUST])
    pattern = re.compile(rf"""["'`]({names})["'`]|[.{{,]\s*({names})\s*:|\.({names})\b(?!\()|case ["'`]?({names})""")
    lines = ((path, n, line) for path, text in files.items() for n, line in enumerate(text.splitlines(), 1))
    return [f"{path}:{n}: {line.strip()}" for path, n, line in lines if pattern.search(line)]


def test_the_dashboard_draws_what_is_published_by_its_kind() -> None:
    files = {path.name: path.read_text() for path in DASHBOARD.rglob("*.mjs")}
    assert len(files) > 10
    assert names_in_modules(files) == []


@pytest.mark.parametrize(
    "line", ['if (facts.algorithm === "trial") draw();', "const VIEWS = { partition: map };", 'model === "shuffle"']
)
def test_a_planted_name_in_the_dashboard_is_found(line: str) -> None:
    assert len(names_in_modules({"view.mjs": line})) == 1


def plant_line(path: str, line: str) -> Files:
    """A file with a line too many."""
    return {path: f"{FILES[path]}\n{line}\n"}


@pytest.mark.parametrize(
    "line",
    [
        'if spec.algorithm.name == "phased": pass',
        'if spec.algorithm.name in ("linear", "sparse"): pass',
        'views["bandit"] = 2',
    ],
)
def test_a_planted_branch_on_an_algorithm_is_found(line: str) -> None:
    assert len(branches(plant_line("server/privateer_server/intake/intake.py", line))) == 1


@pytest.mark.parametrize("line", ['if model == "shuffle": pass', 'MODELS = {"local": 1}', 'MODELS = "local,central"'])
def test_a_planted_name_of_a_trust_model_is_found(line: str) -> None:
    assert len(named_models(plant_line("client/privateer_client/session.py", line))) == 1


def repeated_class_names(files: Files) -> list[str]:
    """Return the names of public classes that are defined in several files."""
    paths_by_name: dict[str, set[str]] = {}
    for path, text in files.items():
        for node in parse(text).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                paths_by_name.setdefault(node.name, set()).add(path)
    return sorted(name for name, paths in paths_by_name.items() if len(paths) > 1)


def test_no_two_public_classes_have_one_name() -> None:
    """Planted: a second class of a name that there is."""
    papers = {str(path.relative_to(ROOT)): path.read_text() for path in sorted((ROOT / "papers").rglob("*.py"))}
    all_files = FILES | papers
    assert repeated_class_names(all_files) == []
    assert repeated_class_names(all_files | {"papers/other.py": "class BanditPolicy:\n    pass\n"}) == ["BanditPolicy"]
