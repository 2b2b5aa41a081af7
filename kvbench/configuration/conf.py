"""The location of conf/, its choices, and how Hydra composes them."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from omegaconf import DictConfig, OmegaConf

from kvbench.errors import UserError
from kvbench.utils.config_folder import check_folder
from kvbench.utils.files import visible
from kvbench.utils.interpolations import check_resolvable
from kvbench.utils.model_override import expanded
from kvbench.utils.overrides import check_overrides
from kvbench.utils.plugins import check_files, plugins
from kvbench.utils.yaml_files import read_yaml

_PACKAGED = Path(__file__).parents[1] / "conf"  # in an installed wheel
CONF = _PACKAGED if _PACKAGED.is_dir() else Path(__file__).parents[2] / "conf"


@cache
def folders() -> tuple[Path, ...]:
    """CONF and the conf/ of every plug-in, in which no name occurs twice. Raises UserError for a broken plug-in."""
    check_files(CONF)
    return (CONF, *(plugin.conf for plugin in plugins()))


# The folder of --config-dir, where every command finds more YAML files than in CONF; at most one.
_more: list[Path] = []


@contextmanager
def more_configuration(folder: Path | None) -> Iterator[None]:
    """Within the block `composed`, `choices` and `options` know the files of this folder too.

    Raises UserError where it is no folder, and for a file in it that cannot be read or has the name of another one.
    """
    if folder is not None and not folder.is_dir():
        what = "is not a folder" if folder.exists() else "does not exist"
        raise UserError(
            f"--config-dir {folder} {what}: it takes a folder with method/NAME.yaml, model/NAME.yaml and so on"
        )
    if folder is not None:
        check_folder(folder, sorted(path.name for path in CONF.iterdir() if path.is_dir()), CONF)
        _check_names(folder)
    before = _more[:]
    _more[:] = [] if folder is None else [folder.absolute()]
    try:
        yield
    finally:
        _more[:] = before


def config_folder() -> Path | None:
    """The folder of this command's --config-dir; None where it has none."""
    return next(iter(_more), None)


def config_dir() -> list[str]:
    """The option --config-dir of this command, for another command to paste; empty where it has none."""
    folder = config_folder()
    return [] if folder is None else ["--config-dir", str(folder)]


def _check_names(folder: Path) -> None:
    """Refuse files of --config-dir whose place another file has: Hydra reads kvbench's and plug-ins' first."""
    owners = {CONF: "kvbench"} | {plugin.conf: str(plugin) for plugin in plugins()}
    for path in visible(folder, "**/*.yaml"):
        name = path.relative_to(folder)
        for conf, owner in owners.items():
            taken = conf / name
            if taken.is_file() and not taken.samefile(path):
                raise UserError(f"{path} would not be read: {owner} has {name}: give the file a name of its own")


def search_path() -> list[str]:
    """The override that has Hydra look into the folder of --config-dir."""
    quoted = (str(folder).replace("\\", "\\\\").replace("'", "\\'") for folder in _more)
    return [f"hydra.searchpath=['file://{folder}']" for folder in quoted]


def composed(overrides: Sequence[str]) -> dict[str, Any]:
    """The configuration of conf/ and the command line's `overrides`, in plain types, for `kvbench.configuration`.

    The files of --config-dir count too.
    """
    whole = expanded(overrides)
    check_typed_overrides(whole)
    return plain(compose_config([*search_path(), *whole]))


def check_typed_overrides(overrides: Sequence[str], several: bool = True) -> None:
    """`check_overrides`, which knows the experiments; and no method takes another's name, and with it its title."""
    check_overrides(overrides, choices("experiment"), several)
    for override in parsed(overrides):
        name, line = str(override.package).removeprefix("method."), str(override.input_line)
        other = line.partition("=")[2].strip("'\"")
        if override.key_or_group == "method" and name in choices("method") and other not in ("", name):
            raise UserError(
                f"{line}: tables would show {other} as {name}, which is another method: give it a name of its own, as "
                f"in +method@method.mine={other}"
            )


def plain(cfg: DictConfig) -> dict[str, Any]:
    """Hydra's composed configuration in plain types: the only place that resolves interpolations.

    Raises UserError for interpolations of anything but the configuration's own keys.
    """
    check_resolvable(OmegaConf.to_container(cfg, resolve=False))
    resolved = OmegaConf.to_container(cfg, resolve=True)
    return {str(key): value for key, value in resolved.items()} if isinstance(resolved, dict) else {}


def hydra_folder() -> str:
    """The folder of conf/ for Hydra, which then searches the folders of plug-ins, too."""
    if folders()[1:]:
        from kvbench.utils.hydra_search_path import look_into_plugins  # Hydra imports all of its plug-ins first

        look_into_plugins()
    return str(CONF)


def with_hydra() -> AbstractContextManager[object]:
    """A block in which Hydra composes and knows the files of groups, as glob() needs them."""
    running = GlobalHydra.instance().is_initialized()
    return nullcontext() if running else initialize_config_dir(hydra_folder(), version_base="1.3")


def compose_config(overrides: Sequence[str], **options: bool) -> DictConfig:
    with with_hydra():
        cfg: DictConfig = compose("config", list(overrides), **options)
    return cfg


def sweep_jobs(overrides: Sequence[str]) -> list[list[str]]:
    """The overrides of every job of a sweep, in the order in which Hydra runs them: `ratio=0.2,0.4` makes two jobs."""
    check_typed_overrides(overrides)
    by_key = {override.get_key_element(): values_of(override) for override in parsed(overrides)}  # a key's last counts
    return [list(job) for job in product(*by_key.values())]


def with_first_choices(overrides: Sequence[str]) -> list[str]:
    """The overrides with the first file of each group that a sweep chooses several of, as in `benchmark=a,b`.

    Hydra composes none of these before the jobs, and would refuse `benchmark.KEY=` unless the default has the key.
    """
    each = parsed(overrides)
    return [values_of(override)[0] if _chooses(override) else str(override.input_line) for override in each]


def parsed(overrides: Sequence[str]) -> list[Override]:
    """The overrides as Hydra reads them; read `with_hydra`, they know the files that glob() names."""
    hydra = GlobalHydra.instance()
    parser = OverridesParser.create(hydra.config_loader() if hydra.is_initialized() else None)
    return list(parser.parse_overrides(list(overrides)))


def _chooses(override: Override) -> bool:
    """Whether an override sweeps over files of a group."""
    group = bool(override.is_sweep_override()) and (CONF / str(override.key_or_group)).is_dir()
    return group and not override.is_hydra_override()


def values_of(override: Override) -> list[str]:
    """One override for each value that it sweeps over."""
    key = override.get_key_element()
    if override.is_sweep_override():
        return [f"{key}={value}" for value in override.sweep_string_iterator()]
    return [override.input_line if override.is_delete() else f"{key}={override.get_value_element_as_str()}"]


def choices(group: str) -> list[str]:
    """The names of a config group in natural order: table2 before table10."""
    return sorted(_files(group), key=lambda name: [int(p) if p.isdigit() else p for p in re.split(r"(\d+)", name)])


def chosen_by_default(group: str) -> list[str]:
    """The choices of a config group that config.yaml makes unless the command makes others."""
    content: Any = read_yaml(CONF / "config.yaml")
    entries = content["defaults"]
    return next(list(entry[group]) for entry in entries if isinstance(entry, dict) and group in entry)


def options(group: str) -> dict[str, str]:
    """Name and one line about each choice of a config group."""
    return stated(group, "about")


def stated(group: str, key: str) -> dict[str, str]:
    """What the file of each choice of a config group states under a key that describes it; "" where it does not.

    Of this file alone: what its node takes over from another file is that file's.
    """
    files = _files(group)
    return {name: _text(files[name], group, key) for name in choices(group)}


def parent(group: str, name: str) -> str | None:
    """The choice of a config group that the file of another one begins with: `defaults: [PARENT@_here_]`."""
    entries = _leaves(file_of(group, name)).get("defaults")
    names = entries if isinstance(entries, list) else []
    return next((str(entry).removesuffix("@_here_") for entry in names if str(entry).endswith("@_here_")), None)


def stated_keys(group: str, name: str) -> set[str]:
    """The keys at the top of a choice's file."""
    return {path.partition(".")[0] for path in _leaves(file_of(group, name))}


def stated_values(group: str, name: str) -> dict[str, object]:
    """The values at the top of a choice's file."""
    return {key: value for key, value in _leaves(file_of(group, name)).items() if "." not in key}


def file_of(group: str, name: str) -> Path:
    """The YAML file of a choice."""
    return _files(group)[name]


def _files(group: str) -> dict[str, Path]:
    return _installed(group) | {file.stem: file for folder in _more for file in visible(folder / group, "*.yaml")}


@cache
def _installed(group: str) -> dict[str, Path]:
    return {file.stem: file for folder in folders() for file in visible(folder / group, "*.yaml")}


def installed_file(group: str, name: str) -> Path | None:
    """The file of a choice of kvbench or of a plug-in; None for other names, including those of --config-dir."""
    return _installed(group).get(name)


def brought_by(group: str, name: str) -> str:
    """The distribution of the plug-in that has a choice; "" for one of kvbench or of --config-dir."""
    path = installed_file(group, name)
    return next((plugin.distribution for plugin in plugins() if path and path.is_relative_to(plugin.conf)), "")


def titled(label: str) -> str:
    """A setting's label with the title of its method instead of the name: "SnapKV 0.2" for "snapkv 0.2".

    Labels begin with a name of conf/method, or of --config-dir, whose file may have a `title`; others stay as they are,
    and so does the name of a file outside of conf/ whose title another file has, from which it may be copied.
    """
    name, space, rest = label.partition(" ")
    if not re.fullmatch(r"[\w.-]+", name):
        return label
    paths = (folder / "method" / f"{name}.yaml" for folder in (*_more, *folders()))
    path = next((path for path in paths if path.is_file()), None)
    if path is None or not (title := _text(path, "method", "title")):
        return label
    others = () if path.is_relative_to(CONF) else (file for other, file in _files("method").items() if other != name)
    alone = all(_text(file, "method", "title") != title for file in others)
    return f"{title if alone else name}{space}{rest}"


def _text(path: Path, group: str, key: str) -> str:
    """A text of a YAML file, which has it under `group` where its package is the whole configuration."""
    texts = _leaves(path)
    return next((str(texts[place]) for place in (key, f"{group}.{key}") if texts.get(place)), "")


@cache
def _leaves(path: Path) -> Mapping[str, object]:
    """`flat` of a YAML file; nothing of one that is no mapping."""
    file = read_yaml(path)
    return flat(file) if isinstance(file, Mapping) else {}


def flat(node: Mapping[str, Any], path: str = "") -> dict[str, object]:
    """Every leaf by its dotted path."""
    leaves: dict[str, object] = {}
    for key, value in node.items():
        leaves |= flat(value, f"{path}{key}.") if isinstance(value, Mapping) else {f"{path}{key}": value}
    return leaves
