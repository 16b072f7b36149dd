"""No file outside an algorithm's own names it, and none outside the table of trust models names one of those."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from privateer_core.algorithms import ALGORITHMS
from privateer_core.trust import TRUST

ROOT = Path(__file__).parents[2]
ROLES = ("shared", "client", "shuffler", "issuer", "server", "lab")
REGISTRY = "shared/privateer_core/algorithms/__init__.py"
TABLE = "shared/privateer_core/trust.py"
DASHBOARD = ROOT / "server/privateer_server/dashboard"
Files = dict[str, str]
ABOUT_PAPERS = "lab/privateer_lab/reproductions/"
"""Reproductions of papers are about their algorithms and models."""
FAMILIES = {"phased": ("phase", "phases"), "partition": ("partitions",)}
"""Words that mean an algorithm although they are not its name, but in the lab, where environments have phases, too."""
HOMONYMS = re.compile(
    r"\.r?partition\(|argpartition|(?<=partition )bandit|(?<=classification )bandit|convex (in|hull|bandits)"
)
"""What Python and numpy call so, and words that mean something else to papers and in geometry."""
ADJECTIVES = ("linear",)
"""Names that are words of mathematics, too: they mean an algorithm where they are strings or modules."""
NAMESAKES = re.compile(r"lab/privateer_lab/(environments/(linear|__init__)|baselines/__init__)\.py")
"""Files with people, or a baseline of paper 1, of the same name."""
OTHER_MEANINGS = {
    (
        "shared/privateer_core/wire/publication.py",
        "shuffle",
    ),  # which endpoint takes a round's reports, for the shuffler
    ("shared/privateer_core/serving/process.py", "none"),
    ("lab/privateer_lab/output.py", "none"),
}
"""Strings that are a trust model's name elsewhere: the wire's table, and another word."""


def sources() -> Files:
    """Every source file by its path in the repository, and its text."""
    paths = [path for role in ROLES for path in sorted((ROOT / role).rglob("*.py"))]
    return {path.relative_to(ROOT).as_posix(): path.read_text() for path in paths}


FILES = sources()


@cache
def parsed(text: str) -> ast.Module:
    """The tree of a file, of which every algorithm asks."""
    return ast.parse(text)


def own_files(name: str) -> re.Pattern[str]:
    """The files of an algorithm."""
    roots = (
        "shared/privateer_core/algorithms",
        "server/privateer_server/algorithms",
        "lab/privateer_lab/audit/attacks",
    )
    return re.compile(rf"({'|'.join(roots)})/{name}\w*(/|\.py)")


def others(files: Files, name: str) -> Iterator[tuple[str, str]]:
    """Every source file that is not the algorithm's own."""
    own = own_files(name)
    for path, text in files.items():
        if not own.match(path) and not path.startswith(ABOUT_PAPERS) and path != REGISTRY:
            yield path, text


def classes_of(files: Files, name: str) -> set[str]:
    """The classes of its name that an algorithm's files define."""
    trees = [parsed(text) for path, text in files.items() if own_files(name).match(path)]
    found = {node.name for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    return {one for one in found if name in one.lower()}


def named_algorithms(files: Files) -> list[str]:
    """Places outside their own files where algorithms or their classes are named, comments and docs included."""
    found, plain = [], {path: HOMONYMS.sub("", text) for path, text in files.items()}
    for name in ALGORITHMS:
        classes, family = "|".join(classes_of(files, name)), "|".join([name, *FAMILIES.get(name, ())])
        for path, text in others(files, name):
            words = name if path.startswith("lab/") else family
            if name in ADJECTIVES:
                words = rf"[\"']{name}[\"']|algorithms\.{name}" if not NAMESAKES.match(path) else rf"algorithms\.{name}"
            pattern = re.compile(rf"(?<![A-Za-z])({classes}|(?i:{words}))(?![A-Za-z])")
            if pattern.search(plain[path]):
                lines = enumerate(text.splitlines(), 1)
                found += [f"{path}:{n}: {line.strip()}" for n, line in lines if pattern.search(HOMONYMS.sub("", line))]
    return found


def strings(tree: ast.AST) -> Iterator[ast.Constant]:
    """String constants that are not docstrings."""
    prose = {
        id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose:
            yield node


def named_models(files: Files) -> list[str]:
    """Places outside the table and algorithms' own files where a string is a trust model's name, or a list of some."""
    own = [own_files(name) for name in ALGORITHMS]
    found = []
    for path, text in files.items():
        if path == TABLE or path.startswith(ABOUT_PAPERS) or any(one.match(path) for one in own):
            continue
        named = [node for node in strings(parsed(text)) if set(node.value.split(",")) <= set(TRUST)]
        found += [f"{path}:{node.lineno}: {node.value}" for node in named if (path, node.value) not in OTHER_MEANINGS]
    return found


def type_branches(files: Files) -> list[str]:
    """Places outside an algorithm's own files where code asks whether something is of its classes."""
    found = []
    for name in ALGORITHMS:
        kinds = classes_of(files, name)
        for path, text in others(files, name):
            for node in ast.walk(parsed(text)):
                if isinstance(node, ast.Call) and ast.unparse(node.func) in ("isinstance", "issubclass", "type"):
                    asked = {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}
                    found += [f"{path}:{node.lineno}: {ast.unparse(node)}"] if asked & kinds else []
    return found


def test_no_file_names_an_algorithm() -> None:
    assert named_algorithms(FILES) == []
    assert type_branches(FILES) == []


def test_no_file_names_a_trust_model() -> None:
    assert named_models(FILES) == []


def named_in_modules(files: Files) -> list[str]:
    """Places in the dashboard's modules where an algorithm or a trust model is named as a string or a key."""
    names = "|".join([*ALGORITHMS, *TRUST])
    pattern = re.compile(rf"""["'`]({names})["'`]|[.{{,]\s*({names})\s*:|\.({names})\b|case ["'`]?({names})""")
    lines = ((path, n, line) for path, text in files.items() for n, line in enumerate(text.splitlines(), 1))
    return [f"{path}:{n}: {line.strip()}" for path, n, line in lines if pattern.search(line)]


def test_the_dashboard_draws_what_is_published_by_its_kind() -> None:
    files = {path.name: path.read_text() for path in DASHBOARD.rglob("*.mjs")}
    assert len(files) > 10
    assert named_in_modules(files) == []


@pytest.mark.parametrize(
    "line", ['if (facts.algorithm === "trial") draw();', "const VIEWS = { partition: map };", 'model === "shuffle"']
)
def test_a_planted_name_in_the_dashboard_is_found(line: str) -> None:
    assert len(named_in_modules({"view.mjs": line})) == 1


def planted(path: str, line: str) -> Files:
    """The files of algorithms, and one more with a line too many."""
    own = {known: text for known, text in FILES.items() if any(own_files(name).match(known) for name in ALGORITHMS)}
    return own | {path: f"{FILES[path]}\n{line}\n"}


@pytest.mark.parametrize(
    "line",
    [
        'if spec.algorithm.name == "phased": pass',
        "from privateer_core.algorithms.partition import PartitionPolicy",
        "def waits_for_phase(): pass",
        "value = PhasedState",
        "# the partition bandit does this otherwise",
        'if spec.algorithm.name == "linear": pass',
        "from privateer_core.algorithms.linear import ALGORITHM",
    ],
)
def test_a_planted_name_of_an_algorithm_is_found(line: str) -> None:
    assert len(named_algorithms(planted("server/privateer_server/intake.py", line))) == 1


def test_a_planted_branch_on_a_class_is_found() -> None:
    assert len(type_branches(planted("server/privateer_server/intake.py", "isinstance(policy, PhasedPolicy)"))) == 1


@pytest.mark.parametrize("line", ['if model == "shuffle": pass', 'MODELS = {"local": 1}', 'MODELS = "local,central"'])
def test_a_planted_name_of_a_trust_model_is_found(line: str) -> None:
    assert len(named_models(planted("client/privateer_client/session.py", line))) == 1
