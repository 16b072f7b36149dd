"""Numbers that machines compare are made as `privateer_core.portable` makes them (docs/architecture.md).

Products and norms by BLAS, and digests of arrays of floats, have other last digits on other processors. What is found
here is mended with `portable`, or listed with the reason for which nobody compares it to the last digit.
"""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

import pytest

ROOT = Path(__file__).parents[2]
ROLES = ("shared", "client", "shuffler", "issuer", "server", "lab")
CORE = "shared/privateer_core/"
CERTIFIED = tuple(f"{CORE}{folder}/" for folder in ("mechanisms", "primitives", "privacy", "spec"))
"""Where parameters of mechanisms are made, and what certificates and publications hold of them."""
_WORDS = frozenset({"event", "events", "claim", "claims", "mechanism", "terms", "certificate", "released"})
_NUMBERS = frozenset({"sensitivity", "standard_deviation", "epsilon", "delta", "astuple", "to_builtins"})
_PRODUCTS = frozenset({"dot", "einsum", "inner", "matmul", "tensordot", "vdot"})
_DIGESTS = frozenset({"sha256", "blake2b", "digest"})

ROWS: Final = "a length of each row, which BLAS does not compute, within bounds that have room for rounding"
WHOLE: Final = "whole numbers"
DRAWN: Final = "what one device or curator draws, once"
TOLERANT: Final = "a word, or a number that was copied"
LISTED: Final = {
    (f"{CORE}mechanisms/cell_pairs.py", "product"): (1, WHOLE),
    (f"{CORE}mechanisms/screened_moments.py", "product"): (2, WHOLE),
    (f"{CORE}mechanisms/vectors/running_vectors.py", "product"): (1, DRAWN),
    (f"{CORE}mechanisms/vectors/vector_directions.py", "product"): (2, "an error that chooses among a few numbers"),
    (f"{CORE}mechanisms/vectors/vector_symbol.py", "product"): (4, DRAWN),
    (f"{CORE}primitives/clipping.py", "product"): (2, ROWS),
    (f"{CORE}primitives/contributions.py", "product"): (5, "what a learner estimates from"),
    (f"{CORE}primitives/row_ball.py", "product"): (2, ROWS),
    (f"{CORE}spec/actions.py", "product"): (2, ROWS),
    (f"{CORE}spec/context.py", "product"): (1, WHOLE),
    (f"{CORE}accounting/accountant.py", "equality"): (1, "an epsilon of exactly 0"),
    (f"{CORE}privacy/record_verification.py", "equality"): (1, TOLERANT),
    ("lab/privateer_lab/audit/suite.py", "equality"): (1, TOLERANT),
    ("lab/privateer_lab/pages/review/evidence.py", "equality"): (2, TOLERANT),
    ("lab/privateer_lab/environments/rows.py", "digest"): (1, "a name by which one process tells people apart"),
}
"""How many of each kind a file has, and why they are no fault."""


@cache
def sources() -> dict[str, str]:
    """Every source file by its path in the repository, and its text."""
    paths = [path for role in ROLES for path in sorted((ROOT / role).rglob("*.py"))]
    return {path.relative_to(ROOT).as_posix(): path.read_text() for path in paths}


def faults(path: str, text: str) -> Iterator[str]:
    """Yield the kind of each place at which a file computes or compares numbers to the last digit."""
    for node in ast.walk(ast.parse(text)):
        if path.startswith(CERTIFIED) and _is_product(node):
            yield "product"
        if isinstance(node, ast.Compare) and _compares_numbers(node):
            yield "equality"
        if isinstance(node, ast.Call) and _name(node.func) in _DIGESTS and _is_of_floats(node):
            yield "digest"


def _is_product(node: ast.AST) -> bool:
    if isinstance(node, ast.BinOp):
        return isinstance(node.op, ast.MatMult)
    if not isinstance(node, ast.Call):
        return False
    function = ast.unparse(node.func)
    return function.startswith(("np.linalg.", "linalg.")) or function.removeprefix("np.") in _PRODUCTS


def _compares_numbers(node: ast.Compare) -> bool:
    """Return whether a value with floats is compared for equality or membership with a value that is no constant."""
    sides = [node.left, *node.comparators]
    exact = any(isinstance(operator, ast.Eq | ast.NotEq | ast.In | ast.NotIn) for operator in node.ops)
    has_number_name = any(_name(side) in _WORDS | _NUMBERS for side in sides)
    return exact and has_number_name and not any(isinstance(side, ast.Constant) for side in sides)


def _is_of_floats(node: ast.Call) -> bool:
    return any(isinstance(part, ast.Attribute) and part.attr == "tobytes" for part in ast.walk(node))


def _name(node: ast.AST) -> str:
    if isinstance(node, ast.Call):
        return _name(node.func)
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def count_faults(files: dict[str, str]) -> dict[tuple[str, str], int]:
    """How many faults of each kind each file has."""
    kinds = {path: list(faults(path, text)) for path, text in files.items()}
    return {(path, kind): all_.count(kind) for path, all_ in kinds.items() for kind in set(all_)}


def test_nothing_new_is_compared_to_the_last_digit() -> None:
    assert count_faults(sources()) == {place: count for place, (count, _) in LISTED.items()}


@pytest.mark.parametrize(
    ("path", "line", "kind"),
    [
        ("mechanisms/vectors/running_vectors.py", "x = float(np.linalg.norm(moved))", "product"),
        ("mechanisms/central_sums.py", "x = weights @ column", "product"),
        ("primitives/clipping.py", "x = np.dot(one, one)", "product"),
        ("privacy/record_verification.py", "x = made.event != given.event", "equality"),
        ("privacy/record_verification.py", "x = one.event in events", "equality"),
        ("mechanisms/vectors/running_vectors.py", "x = astuple(before) == astuple(self)", "equality"),
        ("privacy/terms.py", "x = row.standard_deviation == mechanism.standard_deviation", "equality"),
        ("spec/actions.py", "x = hashlib.sha256(actions.tobytes()).hexdigest()", "digest"),
    ],
)
def test_a_planted_fault_is_found(path: str, line: str, kind: str) -> None:
    """Among the planted lines are two by which servers and auditors on different processors disagreed."""
    text = sources()[CORE + path]
    before, after = count_faults({CORE + path: text}), count_faults({CORE + path: f"{text}\n{line}\n"})
    assert after[CORE + path, kind] == before.get((CORE + path, kind), 0) + 1
    assert count_faults({"lab/privateer_lab/pages/one.py": "x = privacy.delta == 0"}) == {}
