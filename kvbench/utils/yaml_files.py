"""The user's YAML files: read within limits; an error is one line that names file and line."""

import re
from pathlib import Path

import yaml

from kvbench.errors import UserError
from kvbench.utils.regular_files import read_bytes
from kvbench.utils.text import in_one_line

LARGEST = 2**20  # bytes
MOST = 100_000  # values, each counted as often as an alias repeats it: aliases of aliases can mean billions


class _Loader(yaml.SafeLoader):
    """Plain types, read as Hydra reads them: 1e9 is a number, and a date is a text."""


_Loader.yaml_implicit_resolvers = {
    character: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith(":timestamp")]
    for character, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?(\d[\d_]*\.?|\.\d)[\d_]*[eE][-+]?\d+$"), list("-+.0123456789")
)


def read_yaml(path: Path) -> object:
    """The contents of a YAML file in plain types. Raises UserError where it cannot be read."""
    try:
        loader = _Loader(read_bytes(path, LARGEST))
        _check_nodes(node := loader.get_single_node())
        return None if node is None else loader.construct_document(node)
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8: {error}") from error
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}") from error
    except RecursionError:
        raise UserError(f"{path} is not YAML that can be read: nested too deeply") from None
    except (yaml.YAMLError, ValueError) as error:
        raise UserError(f"{path} is not YAML: {yaml_fault(error)}") from error


def yaml_fault(error: Exception) -> str:
    """The mistake in a YAML file, in one line with the line's number if that is known."""
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None)
    return f"line {mark.line + 1}: {problem}" if mark and problem else in_one_line(error)


def _check_keys(node: yaml.MappingNode) -> None:
    keys = set()
    for key, _ in node.value:
        if isinstance(key, yaml.ScalarNode) and key.value != "<<":
            if key.value in keys:
                raise ValueError(f"line {key.start_mark.line + 1}: the key {key.value!r} occurs twice")
            keys.add(key.value)


def _check_nodes(root: yaml.Node | None) -> None:
    """Raise ValueError for a key that is there twice, values that contain themselves, and more than MOST values."""
    sizes: dict[int, int | None] = {}  # of each node, by its id; None while it is being counted

    def size(node: yaml.Node) -> int:
        if id(node) in sizes:
            if (counted := sizes[id(node)]) is None:
                raise ValueError(f"line {node.start_mark.line + 1}: a value that contains itself")
            return counted
        sizes[id(node)] = None
        parts = node.value if isinstance(node, yaml.CollectionNode) else []
        if isinstance(node, yaml.MappingNode):
            _check_keys(node)
            parts = [part for pair in parts for part in pair]
        sizes[id(node)] = total = 1 + sum(map(size, parts))
        if total > MOST:
            raise ValueError(f"line {node.start_mark.line + 1}: more than {MOST:,} values, counting those of aliases")
        return total

    if root is not None:
        size(root)
