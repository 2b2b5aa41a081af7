"""A mistake that Hydra finds in overrides, in kvbench's words: one sentence, with what was probably meant."""

import difflib
import re
from collections.abc import Collection, Iterator, Sequence

import yaml
from hydra.errors import MissingConfigException
from omegaconf import DictConfig
from omegaconf.errors import ConfigAttributeError, ConfigKeyError, InterpolationKeyError, ValidationError

from kvbench.configuration.conf import choices, options, stated_keys
from kvbench.errors import unknown
from kvbench.utils.other_words import WORDS
from kvbench.utils.yaml_files import yaml_fault

_MISSING = re.compile("Interpolation key '(.+)' not found")
NEARLY = 0.7  # difflib's ratio above which a word is a typing error


def one_line(error: BaseException) -> str:
    """An error of kvbench or Hydra as one sentence."""
    if isinstance(error, MissingConfigException) and "/" in str(error.missing_cfg_file):
        group, _, name = str(error.missing_cfg_file).rpartition("/")
        if name.startswith("submitit"):
            return "hydra/launcher=slurm needs hydra-submitit-launcher: pip install 'kvbench[slurm]'"
        return str(unknown(group, name, error.options or choices(group), hint_by_description(group, name)))
    if isinstance(error, yaml.YAMLError):
        place = getattr(getattr(error, "problem_mark", None), "name", "the configuration")
        return f"{place} is not YAML: {yaml_fault(error)}"
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename} cannot be used: {error.strerror}"
    if isinstance(error, InterpolationKeyError) and (source := _MISSING.match(str(error))):
        key = error.full_key
        return f"{key} follows {source[1]}, which the chosen parts do not have: state it, {key}=…"
    cause = error.__cause__
    if isinstance(cause, ConfigKeyError | ConfigAttributeError) and cause.parent_node is not None:
        key = str(cause.key)
        return str(unknown("key", key, map(str, cause.parent_node.keys()), hint_for_key(key, cause.parent_node)))
    line = " ".join(line.strip() for line in str(error).splitlines() if line.strip())
    return f"{line}: {str(cause).splitlines()[0]}" if isinstance(cause, ValidationError) else line


def check_own_keys(overrides: Sequence[str], own: Collection[str]) -> None:
    """Raise UserError for a key that is nearest to one of a command's `own`, which the configuration does not have."""
    from kvbench.configuration.configuration import KEYS  # brings pydantic, for which --help need not wait

    for override in overrides:
        key, equals, _ = override.partition("=")
        if equals and key.isidentifier() and key not in KEYS:
            near = difflib.get_close_matches(key, sorted([*KEYS, *own]), n=1, cutoff=0.5)
            if near and near[0] in own:
                raise unknown("key", key, [*KEYS, *own])


def hint_by_description(group: str, name: str) -> str:
    """A hint that names the choices of a group with a word in their description ("needle": niah); empty for a word that
    is nearly one of the names."""
    about = options(group)
    if spellings := [choice for choice in about if choice.lower() == name.lower()]:
        return f"Did you mean {spellings[0]!r}?"
    if difflib.get_close_matches(name, about, n=1, cutoff=NEARLY):
        return ""
    matches = [choice for choice, text in about.items() if name.lower() in re.findall(r"[\w.-]+", text.lower())]
    return f"Did you mean {' or '.join(map(repr, matches[:3]))}?" if matches else ""


def hint_for_key(key: str, node: DictConfig) -> str:
    """A hint for a key that other tools or other choices have, or that is nested deeper in the configuration."""
    if node._get_parent() is None and key in WORDS:
        return f"It is {WORDS[key]}."
    section = str(node._get_full_key("") or "")
    if section == "hydra.launcher.additional_parameters":
        return f"Every option of sbatch can be added with a plus sign: +{section}.{key}=…"
    if elsewhere := hint_elsewhere(key, section):
        return elsewhere
    of_class = f"A parameter of the class in method._target_ needs a plus sign: +method.{key}=…"
    if section == "method" and node.get("_target_"):
        return of_class
    if deeper := [path for path in paths_of(node) if path.rpartition(".")[2] == key]:
        return f"Did you mean {' or '.join(map(repr, deeper[:3]))}?"
    near = difflib.get_close_matches(key, map(str, node), n=1, cutoff=0.5)
    return of_class if section == "method" and not near else ""


def hint_elsewhere(key: str, section: str) -> str:
    """A hint where other choices of a section have the key: benchmark.path is benchmark=jsonl's; or where it is one."""
    if section == "method" and key in options(section):
        return f"It is a method that is not chosen: add method={key}, or 'method=[…,{key}]'."
    if section != "benchmark":
        return ""
    with_key = [name for name in choices(section) if key in stated_keys(section, name)]
    return f"It is a key of {' or '.join(f'{section}={name}' for name in with_key[:3])}." if with_key else ""


def paths_of(node: DictConfig) -> Iterator[str]:
    """The nested keys of a configuration's node as dotted paths; nothing is resolved."""
    for name, value in node.items_ex(resolve=False):
        if isinstance(value, DictConfig) and not value._is_none() and not value._is_interpolation():
            below = [str(inner) for inner in value] if not value._is_missing() else []
            yield from (f"{name!s}.{inner}" for inner in (*below, *paths_of(value)))
