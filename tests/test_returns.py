"""Results have names: what a function returns is no bare tuple of three values, nor of two of the same type."""

import ast

import pytest

from tests.support.paths import ROOT

PACKAGE = ROOT / "kvbench"
# Interfaces of transformers and torch; Triton's functions, whose results it unpacks, and what gives them sizes.
ELSEWHERE = {
    "cache/base.py": ["update", "get_mask_sizes"],
    "cache/batch.py": ["update"],
    "evaluation/fused_layers.py": ["update"],
    "models/probe.py": ["update", "get_mask_sizes"],
    "ops/kernels/add_column_sums.py": ["splitting"],
    "ops/kernels/codebook_append.py": ["load_vectors"],
    "ops/kernels/codebook_attention.py": ["accumulate"],
    "ops/kernels/neighbour_bits.py": ["limits"],
    "ops/kernels/quantise.py": ["member_strides", "code_strides"],
}
ROOMS = sorted(path.name for path in PACKAGE.iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file())


def is_unnamed(annotation: ast.expr) -> bool:
    """Whether an annotation has such a tuple anywhere; tuple[X, ...] is a sequence."""
    for node in ast.walk(annotation):
        match node:
            case ast.Subscript(value=ast.Name(id="tuple"), slice=ast.Tuple(elts=parts)):
                types = [ast.unparse(part) for part in parts]
                if "..." not in types and (len(types) > 2 or len(set(types)) < len(types)):
                    return True
    return False


def unnamed_results(source: str) -> list[str]:
    functions = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef))
    return [function.name for function in functions if function.returns is not None and is_unnamed(function.returns)]


@pytest.mark.parametrize(
    ("returned", "found"),
    [
        ("tuple[int, int]", True),
        ("tuple[int, str, float] | None", True),
        ("Iterator[tuple[str, str]]", True),
        ("tuple[int, str]", False),
        ("tuple[int, ...]", False),
        ("Interval", False),
    ],
)
def test_results_without_names_are_found(returned, found):
    assert unnamed_results(f"def made() -> {returned}: ...") == ["made"] * found


@pytest.mark.parametrize("room", ROOMS)
def test_results_of_several_values_have_names(room):
    path = PACKAGE / room
    files = [path] if path.is_file() else sorted(path.rglob("*.py"))
    found = {str(file.relative_to(PACKAGE)): unnamed_results(file.read_text(encoding="utf-8")) for file in files}
    assert {name: functions for name, functions in found.items() if functions} == {
        name: functions for name, functions in ELSEWHERE.items() if name.split("/")[0] == room
    }
