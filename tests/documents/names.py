"""The lint of names: how many names and first sentences of docstrings do not say what they stand for.

`python -m tests.documents.names [-v]` prints the shares of every folder and ends with 1 if a share is above its limit
in `names.toml`, or so far below it that the limit has to follow. With ``-v`` it lists the names, too.
"""

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
RULES: Final = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())
SLACK: Final = 0.15
"""By how many percent a share may be below its limit."""
JAVASCRIPT: Final = "sdk/js/src"

_EMPTY_NAMES: Final = frozenset(RULES["empty_names"].split())
_PARTICIPLES: Final = frozenset(RULES["functions"]["participles"].split())
_PRONOUN: Final = re.compile(rf"\b({'|'.join(RULES['docstrings']['pronouns'].split())}|so (?:many|much|few))\b", re.I)
_CODE: Final = re.compile(r"``[^`]*``|`[^`]*`")
_FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef)
_SCOPES: Final = (*_FUNCTIONS, ast.Lambda)
_JAVASCRIPT_BINDINGS: Final = (
    re.compile(r"\b(?:const|let|var)\s+([\w$]+)\s*="),
    re.compile(r"\b(?:const|let|var)\s*[{\[]([^}\]=]*)[}\]]\s*="),
    re.compile(r"\bfor\s*\(\s*(?:const|let)\s+([\w$]+)\s+of\b"),
    re.compile(r"\(([\w$,\s{}\[\]=.\"']*)\)\s*=>"),
    re.compile(r"(?<![\w$.])([\w$]+)\s*=>"),
    re.compile(
        r"^\s*(?:export\s+)?(?:static\s+)?(?:async\s+)?(?:function\s*\*?\s*)?#?[\w$]+\s*\(([^()]*)\)\s*\{", re.M
    ),
)
_COMMENT: Final = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
_JAVASCRIPT_FUNCTION: Final = re.compile(
    r"\bfunction\s*\*?\s*([\w$]+)|^\s+(?:static\s+|async\s+)*#?([\w$]+)\s*\([^()]*\)\s*\{|\bconst\s+([\w$]+)\s*=\s*(?:async\s*)?"
    r"(?:\([^()]*\)|[\w$]+)\s*=>",
    re.M,
)


@dataclass
class Survey:
    """The names of a folder, and those that are empty."""

    n_names: int = 0
    n_functions: int = 0
    n_docstrings: int = 0
    names: list[str] = field(default_factory=list)
    functions: list[str] = field(default_factory=list)
    docstrings: list[str] = field(default_factory=list)

    def shares(self) -> dict[str, float]:
        """Return the share of empty names, functions and docstrings, in percent."""
        return {
            "names": 100 * len(self.names) / max(1, self.n_names),
            "functions": 100 * len(self.functions) / max(1, self.n_functions),
            "docstrings": 100 * len(self.docstrings) / max(1, self.n_docstrings),
        }

    def add_scope(self, path: str, bindings: list[tuple[str, int]], sets: set[str]) -> None:
        """Count the names that a scope binds, each with its line."""
        words = {name.strip("_#$") for name, _ in bindings}
        self.n_names += len(bindings)
        for name, line in bindings:
            word = name.strip("_#$")
            is_pair = RULES["pairs"].get(word) in words
            if word in _EMPTY_NAMES and not is_pair and not (word == "seen" and name in sets):
                self.names.append(f"{path}:{line} {name}")

    def add_function(self, path: str, name: str, line: int) -> None:
        """Count a function by its name."""
        self.n_functions += 1
        if name.strip("_#$") in _PARTICIPLES:
            self.functions.append(f"{path}:{line} {name}")

    def add_docstring(self, path: str, line: int, text: str) -> None:
        """Count a docstring by its first sentence."""
        self.n_docstrings += 1
        paragraph = " ".join(re.split(r"\n\s*\n", text.strip())[0].split())
        sentence = re.split(r"(?<=[.!?])\s", paragraph)[0]
        if len(_PRONOUN.findall(_CODE.sub("", sentence))) > 1:
            self.docstrings.append(f"{path}:{line} {sentence}")


def survey_python(folder: Path) -> Survey:
    """Survey the modules of a folder."""
    survey = Survey()
    for path in sorted(folder.rglob("*.py")):
        if "build" not in path.parts:
            _add_module(survey, str(path.relative_to(ROOT)), ast.parse(path.read_text()))
    return survey


def _add_module(survey: Survey, path: str, tree: ast.Module) -> None:
    for scope in ast.walk(tree):
        if isinstance(scope, (ast.Module, *_SCOPES)):
            nodes = list(_own_nodes(scope))
            bindings = [*_arguments(scope), *((name, line) for node in nodes for name, line in _bindings(node))]
            survey.add_scope(path, bindings, {name for node in nodes for name in _set_names(node)})
        if isinstance(scope, _FUNCTIONS) and not scope.name.startswith("__"):
            survey.add_function(path, scope.name, scope.lineno)
        if isinstance(scope, (ast.Module, ast.ClassDef, *_FUNCTIONS)) and (docstring := ast.get_docstring(scope)):
            survey.add_docstring(path, getattr(scope, "lineno", 1), docstring)


def _own_nodes(scope: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(scope):
        if not isinstance(child, _SCOPES):
            yield child
            yield from _own_nodes(child)


def _arguments(scope: ast.AST) -> list[tuple[str, int]]:
    if not isinstance(scope, _SCOPES):
        return []
    group = scope.args
    starred = [argument for argument in (group.vararg, group.kwarg) if argument]
    return [(each.arg, each.lineno) for each in (*group.posonlyargs, *group.args, *group.kwonlyargs, *starred)]


def _bindings(node: ast.AST) -> list[tuple[str, int]]:
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        return [(node.id, node.lineno)]
    if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
        return [(node.attr, node.lineno)]
    return []


def _set_names(node: ast.AST) -> list[str]:
    if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
        return []
    annotation = ast.unparse(node.annotation) if isinstance(node, ast.AnnAssign) else ""
    if not re.search(r"\bset\b|frozenset|^\{[^:]*\}$", ast.unparse(node.value) + annotation):
        return []
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return [target.id for target in targets if isinstance(target, ast.Name)]


def survey_javascript(folder: Path) -> Survey:
    """Survey the modules of the SDK for JavaScript by what declares a name in their text."""
    survey = Survey()
    for path in sorted(folder.rglob("*.js")):
        text = re.sub(
            r"/\*.*?\*/|//[^\n]*", lambda match: re.sub(r"[^\n]", " ", match[0]), path.read_text(), flags=re.S
        )
        bindings = []
        for pattern in _JAVASCRIPT_BINDINGS:
            for match in pattern.finditer(text):
                line = text.count("\n", 0, match.start()) + 1
                parts = re.sub(r"=[^,]*", "", match[1]).split(",")
                names = [re.sub(r"[{}\[\].\s]", "", part.split(":")[-1]) for part in parts]
                bindings += [(name, line) for name in names if re.fullmatch(r"[A-Za-z_$][\w$]*", name)]
        survey.add_scope(str(path.relative_to(ROOT)), bindings, {"seen"} if "new Set" in text else set())
        for match in _JAVASCRIPT_FUNCTION.finditer(text):
            name = match[1] or match[2] or match[3]
            if name not in ("if", "for", "while", "switch", "catch", "constructor"):
                survey.add_function(str(path.relative_to(ROOT)), name, text.count("\n", 0, match.start()) + 1)
    return survey


def surveys() -> dict[str, Survey]:
    """Return the survey of each folder that has limits."""
    return {
        folder: survey_javascript(ROOT / folder) if folder == JAVASCRIPT else survey_python(ROOT / folder)
        for folder in RULES["limits"]["names"]
    }


def drifts(survey: Survey, folder: str) -> list[str]:
    """Return in what the shares of a folder are above their limits, or too far below."""
    messages = []
    for kind, share in survey.shares().items():
        limit = RULES["limits"][kind].get(folder, 0.0)
        if share > limit:
            messages.append(f"{folder}: {share:.2f} % of {kind} say nothing, {limit} % may: rename (-v lists them)")
        elif limit - share > SLACK:
            messages.append(
                f"{folder}: {share:.2f} % of {kind} say nothing: lower the limit of {limit} % in names.toml"
            )
    return messages


def main(arguments: list[str]) -> int:
    """Print the shares and their faults; return the exit code."""
    messages = []
    for folder, survey in surveys().items():
        print(f"{folder:12}", *(f"{kind} {share:5.2f} %" for kind, share in survey.shares().items()))
        if "-v" in arguments:
            print(*survey.names, *survey.functions, *survey.docstrings, sep="\n")
        messages += drifts(survey, folder)
    print(*messages, sep="\n")
    return 1 if messages else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
