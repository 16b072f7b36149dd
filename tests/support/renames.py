"""The proof of a renaming: two versions of a module are the same program but for names and docstrings.

`python -m tests.support.renames OLD [NEW] [FOLDER ...]` compares two commits, or a commit and the working tree, file by
file. Every name of a scope has to stand for one name of the other version at all of its places (alpha equivalence), so
that two names which become one are found; attributes, keywords, functions and imports may be renamed alike everywhere.
It prints what was renamed, and ends with 1 if a file differs in more than that.
"""

import ast
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
FOLDERS: Final = ("shared", "client", "shuffler", "issuer", "server", "lab", "papers")
_FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef)
_COMPREHENSIONS: Final = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_SCOPES: Final = (ast.Module, ast.ClassDef, *_FUNCTIONS, ast.Lambda, *_COMPREHENSIONS)
_IMPORTED: Final = "imported"
"""Stands for every imported name: imports are sorted by name, and so renaming changes their order."""


class Scope:
    """A scope, the names that it binds, and the one around it."""

    def __init__(self, node: ast.AST, parent: "Scope | None") -> None:
        self.node, self.parent = node, parent
        self.bindings: dict[str, int] = {}
        self.imports: set[str] = set()
        self.outer: set[str] = set()

    def bind(self, name: str) -> None:
        """Bind a name here, or where `global` and `nonlocal` say."""
        if name not in self.outer:
            self.bindings.setdefault(name, len(self.bindings))

    def resolve(self, name: str, depth: int = 0) -> tuple[int, int] | str | None:
        """Return how many scopes out a name is bound, and as which of that scope's names; None if it is built in."""
        is_visible = depth == 0 or not isinstance(self.node, ast.ClassDef)
        if is_visible and name in self.bindings:
            return depth, self.bindings[name]
        if is_visible and name in self.imports:
            return _IMPORTED
        return self.parent.resolve(name, depth + 1) if self.parent else None


class Shape:
    """The tree of a module without docstrings, each name replaced by the place that binds it."""

    def __init__(self, source: str) -> None:
        self.names: list[str] = []
        """Every name, in the order of the tree: those of two versions stand for each other."""
        tree = ast.parse(source)
        self.tokens: list[object] = []
        self.imports: set[tuple[str | None, str]] = set()
        self.imported: list[str] = []
        """Imported names, wherever they are used."""
        self._visit(tree, None)

    def _visit(self, node: ast.AST, scope: Scope | None) -> None:
        if isinstance(node, _SCOPES):
            scope = Scope(node, scope)
            for name, is_outer in _bound_names(node):
                scope.outer.add(name) if is_outer else scope.bind(name)
            scope.imports = {_imported_name(each) for each in _nodes_of(node) if isinstance(each, ast.alias)}
        assert scope is not None
        if isinstance(node, ast.Import | ast.ImportFrom):
            module = getattr(node, "module", None)
            self.imports |= {(module, _imported_name(alias)) for alias in node.names}
            return
        self.tokens.append(type(node).__name__)
        for name, content in ast.iter_fields(node):
            if name == "body" and isinstance(content, list):
                content = [each for each in content if not _is_docstring(each)]
            self._add(node, name, content, scope)

    def _add(self, node: ast.AST, name: str, content: object, scope: Scope) -> None:
        if isinstance(content, list):
            statements = [each for each in content if not isinstance(each, ast.Import | ast.ImportFrom)]
            self.tokens.append(len(statements))
            for element in content:
                self._add(node, name, element, scope)
        elif isinstance(content, ast.AST):
            self._visit(content, scope)
        elif isinstance(content, str) and not isinstance(node, ast.Constant):
            self.names.append(content)
            is_bound = isinstance(node, (ast.Name, ast.arg, ast.ExceptHandler, ast.MatchAs, ast.MatchStar))
            # What is built in keeps its name; attributes, keywords and functions are told by `renames`.
            token = scope.resolve(content) or content if is_bound else "name"
            self.tokens.append(token)
            self.imported += [content] if token == _IMPORTED else []
        else:
            self.tokens.append(repr(content))


def _is_docstring(statement: ast.AST) -> bool:
    """Whether a statement is a string: a docstring, also of a constant or a field."""
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )


def _bound_names(scope: ast.AST) -> Iterator[tuple[str, bool]]:
    """Yield the names that a scope binds itself, and whether they are bound outside of it instead."""
    nodes = list(_nodes_of(scope))
    for node in nodes:
        if isinstance(node, ast.Global | ast.Nonlocal):
            yield from ((name, True) for name in node.names)
    for node in nodes:
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            yield node.id, False
        elif isinstance(node, ast.arg):
            yield node.arg, False
        elif isinstance(node, (*_FUNCTIONS, ast.ClassDef, ast.ExceptHandler, ast.MatchAs, ast.MatchStar)) and node.name:
            yield node.name, False


def _imported_name(alias: ast.alias) -> str:
    return (alias.asname or alias.name).split(".")[0]


def _nodes_of(scope: ast.AST) -> Iterator[ast.AST]:
    if isinstance(scope, (*_FUNCTIONS, ast.Lambda)):
        yield from (node for node in ast.walk(scope.args) if isinstance(node, ast.arg))
    for child in ast.iter_child_nodes(scope):
        if not isinstance(child, ast.arguments):
            yield from _nodes_within(child, isinstance(scope, _COMPREHENSIONS))


def _nodes_within(node: ast.AST, is_comprehension: bool) -> Iterator[ast.AST]:
    yield node
    if isinstance(node, _COMPREHENSIONS):  # a name assigned within an expression is bound around the comprehension
        yield from (each.target for each in ast.walk(node) if isinstance(each, ast.NamedExpr))
    if not isinstance(node, _SCOPES):
        for child in ast.iter_child_nodes(node):
            if not (is_comprehension and isinstance(node, ast.NamedExpr) and child is node.target):
                yield from _nodes_within(child, is_comprehension)


def compare(old: str, new: str) -> tuple[bool, Counter[tuple[str, str]]]:
    """Return whether two sources are the same but for names and docstrings, and what was renamed how often."""
    before, after = Shape(old), Shape(new)
    if before.tokens != after.tokens:
        return False, Counter()
    pairs = list(zip(before.names, after.names, strict=True))
    replacements = set(zip(before.imported, after.imported, strict=True))
    names = dict(replacements)
    imports = {(module, names.get(name, name)) for module, name in before.imports}
    is_same = len(names) == len(replacements) == len(set(names.values())) and imports == after.imports
    return is_same, Counter(pair for pair in pairs if pair[0] != pair[1])


def _source(commit: str, path: str) -> str | None:
    if not commit:
        return (ROOT / path).read_text() if (ROOT / path).exists() else None
    process = subprocess.run(["git", "show", f"{commit}:{path}"], cwd=ROOT, capture_output=True, text=True)
    return process.stdout if process.returncode == 0 else None


def main(arguments: list[str]) -> int:
    """Compare two versions of the folders' modules; return the exit code."""
    old, new, *folders = [*arguments, ""] if len(arguments) == 1 else arguments
    command = ["git", "diff", "--no-renames", "--name-only", old, *([new] if new else []), "--", *(folders or FOLDERS)]
    paths = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    renames, different = Counter[tuple[str, str]](), []
    for path in (path for path in paths if path.endswith(".py")):
        before, after = _source(old, path), _source(new, path)
        is_same, pairs = compare(before or "", after or "")
        renames += pairs
        different += [] if is_same else [path]
    print(f"{sum(renames.values())} places, {len(renames)} names, {len(paths)} files")
    print(*(f"{name} -> {replacement} ({count})" for (name, replacement), count in renames.most_common()), sep="\n")
    print(*(f"DIFFERENT: {path}" for path in different), sep="\n")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
