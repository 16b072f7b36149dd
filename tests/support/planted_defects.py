"""Plants defects in a copy of the tree, at most one a line, and reports which defects the tests catch.

Every defect is an expression beside what the code says, and `PLANTED_DEFECT` chooses one at run time. So one run of the
tests on the copy tells which of them come by which defect (`PLANTED_HITS`), and ``try`` runs these alone with each.

    python -m tests.support.planted_defects draw 55 > defects.json  # 28 of all packages, 12 of PLACES
    python -m tests.support.planted_defects plant defects.json COPY  # COPY: a worktree with its own environment
    cd COPY && PLANTED_HITS=hits PYTHONPATH=. python -m pytest -p planted_defect tests/contract ...
    python -m tests.support.planted_defects try defects.json COPY hits ... > caught.json
"""

import ast
import json
import os
import random
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

PACKAGES = ("shared", "client", "shuffler", "issuer", "server", "lab", "papers")
PLACES = (  # long, with many branches or much state
    "lab/privateer_lab/drafting/spec_draft.py",
    "lab/privateer_lab/cli/try_out.py",
    "lab/privateer_lab/planning/expectation/expected.py",
    "lab/privateer_lab/planning/algorithm_choice.py",
    "shared/privateer_core/serving/http_protocol.py",
    "shared/privateer_core/spec/spec.py",
    "shared/privateer_core/algorithms/trial/spec.py",
    "shuffler/privateer_shuffler/followed_rounds.py",
    "server/privateer_server/intake/intake.py",
    "server/privateer_server/rounds/closing.py",
    "server/privateer_server/api/experiment_routes.py",
    "client/privateer_client/session.py",
)
_PAIRS = [(ast.Lt, ast.LtE), (ast.Gt, ast.GtE), (ast.Eq, ast.NotEq), (ast.In, ast.NotIn), (ast.Is, ast.IsNot)]
_PAIRS += [(ast.Add, ast.Sub), (ast.Mult, ast.Div), (ast.And, ast.Or)]
_OTHER = {a: b for pair in _PAIRS for a, b in (pair, pair[::-1])}
_TESTS_OF_A_DEFECT = 20
# The module that the copy's code asks; it is also the plugin that forgets, before each test, what the last one met.
_SWITCH = """
import os
from pathlib import Path
_active, _hits, _met = int(os.environ.get("PLANTED_DEFECT", -1)), os.environ.get("PLANTED_HITS"), set()
def on(number):
    if _hits and number not in _met:
        _met.add(number)
        with Path(_hits).open("a") as file:
            file.write(f"{number}\\t{os.environ.get('PYTEST_CURRENT_TEST', '').rsplit(' (', 1)[0]}\\n")
    return number == _active
def pytest_runtest_logstart():
    _met.clear()
"""


def _with_defect(node: ast.expr) -> ast.expr | None:
    """Return the expression with its defect, or None where there is none to plant."""
    match node:
        case ast.Compare(left, [op, *ops], rights) if type(op) in _OTHER:
            return ast.Compare(left, [_OTHER[type(op)](), *ops], rights)
        case ast.BoolOp(op, values):
            return ast.BoolOp(_OTHER[type(op)](), values)
        case ast.BinOp(left, op, right) if type(op) in _OTHER and not isinstance(
            left, ast.Constant | ast.JoinedStr | ast.List
        ):
            return ast.BinOp(left, _OTHER[type(op)](), right)
        case ast.UnaryOp(ast.Not(), operand):
            return operand
        case ast.Constant(int(value)) if not isinstance(value, bool):
            return ast.Constant(value + 1)
        case ast.Call(function, [first, second, *others], keywords):
            if not isinstance(first, ast.Starred) and not isinstance(second, ast.Starred):
                return ast.Call(function, [second, first, *others], keywords)
    return None


def _expressions(node: ast.AST, name: str = "") -> Iterator[tuple[str, ast.expr]]:
    """Yield the expressions of functions' bodies, each with the function's name: no types, decorators or patterns."""
    if isinstance(node, ast.JoinedStr | ast.AnnAssign | ast.Raise):
        return
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        name = f"{name}.{node.name}"
        children: list[ast.AST] = list(node.body)
    elif isinstance(node, ast.match_case):
        children = list(node.body)
    else:
        children = list(ast.iter_child_nodes(node))
        if isinstance(node, ast.expr) and name:
            yield name, node
    for child in children:
        yield from _expressions(child, name)


def _sites(path: Path) -> Iterator[tuple[dict[str, str | int], ast.expr]]:
    """Yield the places where a defect fits on a line: function, expression, and its number among equal ones."""
    source, times = path.read_bytes(), defaultdict[tuple[str, str], int](int)
    lines = source.splitlines()
    for name, node in _expressions(ast.parse(source)):
        if node.lineno != node.end_lineno or _with_defect(node) is None:
            continue
        text = lines[node.lineno - 1][node.col_offset : node.end_col_offset].decode()
        yield {"file": str(path), "in": name, "code": text, "time": times[name, text], "line": node.lineno}, node
        times[name, text] += 1


def draw(seed: int, count: str = "", *places: str) -> list[dict[str, str | int]]:
    """Draw four defects of each package and one of each place; or ``count`` of each given place."""
    generator, defects = random.Random(seed), []
    counts = dict.fromkeys(places, int(count)) if count else dict.fromkeys(PACKAGES, 4) | dict.fromkeys(PLACES, 1)
    for place, number in counts.items():
        paths = [Path(place)] if place.endswith(".py") else sorted(Path(place).rglob("*.py"))
        defects += generator.sample([site for path in paths for site, _ in _sites(path)], number)
    return defects


def plant(defects: list[dict[str, str | int]], copy: Path) -> list[int]:
    """Write the defects into the copy, switched off; return the numbers of defects whose code is gone."""
    missing, edits = [], defaultdict[Path, list[tuple[ast.expr, str]]](list)
    for number, defect in enumerate(defects):
        path = copy / str(defect["file"])
        sites = _sites(path) if path.exists() else ()
        nodes = [node for site, node in sites if all(site[key] == defect[key] for key in ("in", "code", "time"))]
        if not nodes:
            missing.append(number)
            continue
        changed = _with_defect(nodes[0])
        assert changed is not None
        is_on = f"__import__('planted_defect').on({number})"
        edits[path].append((nodes[0], f"(({ast.unparse(changed)}) if {is_on} else ({defect['code']}))"))
    for path, changes in edits.items():
        lines = path.read_bytes().splitlines(keepends=True)
        for node, text in sorted(changes, key=lambda change: (change[0].lineno, change[0].col_offset), reverse=True):
            line = lines[node.lineno - 1]
            lines[node.lineno - 1] = line[: node.col_offset] + text.encode() + line[node.end_col_offset :]
        path.write_bytes(b"".join(lines))
    next((copy / ".venv/lib").glob("python*/site-packages")).joinpath("planted_defect.py").write_text(_SWITCH)
    return missing


def attempt(number: int, tests: list[str], copy: Path) -> str | None:
    """Run tests with one defect until a test fails; return the test's name."""
    environment = {**os.environ, "PLANTED_DEFECT": str(number)}
    options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--timeout=60", "-rfE", "--tb=no"]
    command = [".venv/bin/python", "-m", "pytest", *options, *tests]
    run = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True, check=False)
    failed = [line.split()[1] for line in run.stdout.splitlines() if line.startswith(("FAILED ", "ERROR "))]
    return failed[0] if failed else None if run.returncode == 0 else f"exit code {run.returncode}: {run.stdout[-300:]}"


def main(command: str, *arguments: str) -> None:
    """Draw, plant or try defects, as the module says."""
    if command == "draw":
        print(json.dumps(draw(int(arguments[0]), *arguments[1:]), indent=1))
        return
    defects, copy = json.loads(Path(arguments[0]).read_text()), Path(arguments[1])
    if command == "plant":
        print("their code is gone:", plant(defects, copy))
        return
    tests = defaultdict[int, dict[str, None]](dict)
    for line in (line for name in arguments[2:] for line in Path(name).read_text().splitlines()):
        number, test = line.split("\t")
        tests[int(number)][test] = None
    for number, names in sorted(tests.items()):
        sample = random.Random(number).sample(
            [name for name in names if name], min(_TESTS_OF_A_DEFECT, len(names) - ("" in names))
        )
        print(json.dumps([number, len(names), attempt(number, sample, copy) if sample else None]), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
