"""Functions of imported modules with the code of a changed source: no fault needs an import of its own."""

import gc
from collections import defaultdict
from collections.abc import Iterator
from types import CodeType, FunctionType

Pair = tuple[CodeType, CodeType]
Where = tuple[str, str, int]  # file, name and first line of a function


def changed_functions(path: str, source: str, faulty: str) -> list[Pair] | None:
    """The code of each function that a fault changes, before and after; None where it changes what an import runs.

    path: of the file, as its import names it.
    """
    old, new = (compile(text, path, "exec", dont_inherit=True) for text in (source, faulty))
    pairs = list(differing(old, new))
    fits = all(is_function(a) and a.co_freevars == b.co_freevars for a, b in pairs)
    return pairs if pairs and fits else None


def differing(old: CodeType, new: CodeType) -> Iterator[Pair]:
    """Functions that differ, with those in them, which a call made earlier; other codes that differ themselves."""
    if same(old, new):
        return
    function = is_function(old)
    if function or outline(old) != outline(new):
        yield old, new
    if len(codes(old)) == len(codes(new)):
        for inner in zip(codes(old), codes(new), strict=True):
            if is_function(inner[0]) or not function:
                yield from differing(*inner)


def same(old: CodeType, new: CodeType) -> bool:
    return outline(old) == outline(new) and all(map(same, codes(old), codes(new)))


def outline(code: CodeType) -> tuple[object, ...]:
    """What a code does apart from the codes in it, wherever it stands in its file."""
    constants = [(type(const), repr(const)) for const in code.co_consts if not isinstance(const, CodeType)]
    return code.co_code, code.co_names, code.co_varnames, constants, [inner.co_name for inner in codes(code)]


def codes(code: CodeType) -> list[CodeType]:
    return [const for const in code.co_consts if isinstance(const, CodeType)]


def is_function(code: CodeType) -> bool:
    """Not a module, a class or a comprehension, which run where they stand."""
    return code.co_flags & 0x1 != 0 and (code.co_name == "<lambda>" or not code.co_name.startswith("<"))


def functions_by_place() -> dict[Where, list[FunctionType]]:
    """All functions of this process. To look for them in each copy would copy the memory of every object."""
    gc.unfreeze()  # what a collection leaves out is not listed
    functions = defaultdict(list)
    for function in gc.get_objects():
        if type(function) is FunctionType:
            functions[where(function.__code__)].append(function)
    gc.freeze()
    return functions


def swap(pairs: list[Pair], functions: dict[Where, list[FunctionType]]) -> None:
    """Every function that runs an old code runs the new one. For a process that ends soon: nothing undoes it."""
    for old, new in pairs:
        for function in functions.get(where(old), ()):
            function.__code__ = new


def where(code: CodeType) -> Where:
    return code.co_filename, code.co_qualname, code.co_firstlineno
