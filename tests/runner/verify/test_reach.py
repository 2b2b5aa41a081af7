"""No text of a manifest, in whatever field of whatever class, opens a file, imports a module or starts anything."""

import copy
import inspect
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from kvbench.benchmarks import Benchmark
from kvbench.configuration.conf import CONF, choices
from kvbench.errors import UserError
from kvbench.metrics import answers
from kvbench.records.recorded_configuration import recorded
from kvbench.runner.verify import known_classes, limits, materials
from kvbench.runner.verify.command import place
from kvbench.runner.verify.reach import within_reach
from kvbench.utils.hashing import file_hash
from kvbench.utils.regular_files import read_text
from kvbench.utils.revisions import checked_revision
from kvbench.utils.targets import TARGET, build, imported
from tests.support.config import NAMES, method_configs, parts
from tests.support.watched import LISTED, watched

pytestmark = pytest.mark.heavy

MODULE = "named_by_a_manifest"
PARTS = ("allocation", "decode_compression", "heads", "scoring", "storage", "probe")
KINDS = ("benchmark", "engine", "method", *PARTS)


class Words:
    """A tokenizer of words."""

    chat_template = None

    def encode(self, text: str, **options: object) -> list[int]:
        return [len(word) for word in text.split()]

    def __call__(self, text: str, **options: object) -> dict[str, list[int]]:
        return {"input_ids": self.encode(text)}


class Field(NamedTuple):
    """A parameter of a class, in the first choice of conf/ that has the class."""

    choice: str
    node: tuple[object, ...]  # the keys that lead to the class's node
    parameter: str


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    """A folder to work in, with files and a module beside it that nothing has imported."""
    here, modules = tmp_path / "here", tmp_path / "modules"
    here.mkdir()
    modules.mkdir()
    (modules / f"{MODULE}.py").write_text("def run(prediction, answers):\n    return 1.0\n")
    (here / "named.jsonl").write_text('{"context": "a secret", "answers": ["secret"]}\n')
    (here / "published").write_text("a secret")
    monkeypatch.syspath_prepend(str(modules))
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    monkeypatch.chdir(here)
    monkeypatch.setattr(limits, "TEXT", 10**4)
    monkeypatch.setattr(limits, "SAMPLES_MADE", 2)
    return here


def texts(here: Path) -> list[str]:
    """Texts that name the function and files, and then a folder and a file like a word of configurations."""
    return [f"{MODULE}.run", "named.jsonl", str(here / "named.jsonl"), str(here), "published"]


@cache
def configurations(kind: str) -> dict[str, dict]:
    """The node of every choice of a kind; kvpress, whose classes are not kvbench's, is not installed."""
    if kind == "method":
        return method_configs(*NAMES, scores=None)
    return parts(kind) if kind in PARTS else {name: _composed(kind, name) for name in choices(kind)}


def _composed(kind: str, name: str) -> dict:
    with initialize_config_dir(str(CONF), version_base="1.3"):
        # a benchmark's node refers to the model's
        config = (
            compose("config", [f"{kind}={name}"]) if kind == "benchmark" else compose(overrides=[f"+{kind}={name}"])
        )
    return OmegaConf.to_container(config, resolve=True)[kind]


@cache
def fields(kind: str) -> list[Field]:
    """Every parameter of every class of a kind, once."""
    found = {}
    for choice, config in configurations(kind).items():
        for keys, node in _nodes(config):
            for parameter in inspect.signature(imported(node[TARGET])).parameters:
                found.setdefault((node[TARGET], parameter), Field(choice, keys, parameter))
    return list(found.values())


def _nodes(value: object, keys: tuple[object, ...] = ()) -> Iterator[tuple[tuple[object, ...], dict]]:
    """The nodes of a configuration that name a class, with the keys that lead there."""
    if isinstance(value, dict) and TARGET in value:
        yield keys, value
    if isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _nodes(inner, (*keys, key))


def forged(kind: str, field: Field, value: object) -> list[dict]:
    """The choice with a value in a field; a benchmark also inside another one."""
    config = copy.deepcopy(configurations(kind)[field.choice])
    node = config
    for key in field.node:
        node = node[key]
    node[field.parameter] = value
    inside = {TARGET: "kvbench.benchmarks.Serve", "rates": [1], "of": config}
    return [config, inside] if kind == "benchmark" else [config]


def made_of(kind: str, config: dict) -> None:
    """What `kvbench verify` makes of a configuration. Raises whatever it refuses it with."""
    if kind == "benchmark":
        with materials.offline():
            materials.samples_of({"config": {"benchmark": config}}, Words(), {})
    elif kind == "engine":
        known_classes.engine_labels(config)
    elif kind == "method":
        known_classes.settings_of(recorded({"config": {"method": {"forged": config}, "ratio": 0.5}}))
    else:  # a part of any method
        with within_reach({}):
            build(config, kind, object, known_classes.known)


@pytest.mark.parametrize("kind", KINDS)
def test_no_text_of_a_manifest_reaches_anything(kind, here):
    assert happened(kind, [*texts(here), texts(here)], here) == []


@pytest.mark.parametrize("kind", ["benchmark", "method"])
def test_readers_and_the_look_up_of_functions_refuse_by_themselves(kind, here, monkeypatch):
    """Where a field is not known as a place or a function."""
    monkeypatch.setattr(materials, "placed", lambda node, *rest: dict(node))
    monkeypatch.setattr(materials, "check_functions", lambda *given: None)
    monkeypatch.setattr(known_classes, "check_no_files", lambda *given: None)
    monkeypatch.setattr(known_classes, "paths", lambda node: iter(()))
    lines = happened(kind, texts(here)[:3], here)
    assert [line for line in lines if not any(event in line for event in LISTED)] == []


def happened(kind: str, values: list[object], here: Path) -> list[str]:
    """What the values do in the fields of a kind."""
    lines = []
    for field in fields(kind):
        for value in values:
            for config in forged(kind, field, value):
                with watched(here, MODULE) as seen, suppress(Exception):  # whatever refuses the value
                    made_of(kind, config)
                lines += [f"{field}={value!r}: {line}" for line in seen]
    return lines


def test_what_is_watched_is_seen(here):
    with watched(here, MODULE) as seen:
        read_text("named.jsonl")
        answers.function(f"{MODULE}.run")
        list(here.iterdir())
    assert {"open named.jsonl", f"open {MODULE}.py"} <= {*seen}
    assert {f"{event} here" for event in LISTED} & {*seen}  # which of the two is of Python's version


def test_the_places_of_the_command_line_alone_are_read_in_inner_benchmarks_too(here):
    path = str(here / "named.jsonl")
    inner = {TARGET: "kvbench.benchmarks.OwnPrompts", "path": "elsewhere.jsonl", "metric": "contains"}
    config = {"config": {"benchmark": {TARGET: "kvbench.benchmarks.Serve", "rates": [1], "of": inner}}}
    with pytest.raises(ValueError, match=r"the run read a file: benchmark\.of\.path=PATH gives its path here"):
        materials.benchmark_of(config, {"benchmark.path": path})
    assert isinstance(materials.benchmark_of(config, dict([place(f"benchmark.of.path={path}")])), Benchmark)


@pytest.mark.parametrize("key", ["data_dir", "path", "essays_dir", "prompts_file"])
def test_the_word_for_published_data_is_a_path_where_a_key_does_not_know_it(key):
    words = {"haystack_dir": "published", "needle_file": "published", "essays_dir": None}
    assert materials.placed(words, {}, "benchmark") == words
    with pytest.raises(ValueError, match=rf"the run read a file: benchmark\.of\.{key}=PATH gives its path here"):
        materials.placed({"of": {key: "published"}}, {}, "benchmark")


def test_a_file_whose_hash_is_remembered_has_none_for_a_stranger(here):
    file_hash(here / "named.jsonl")
    with within_reach({}), pytest.raises(UserError, match=r"named.jsonl' is no file that others may name"):
        file_hash(here / "named.jsonl")


@pytest.mark.parametrize("revision", ["/etc/passwd", "../../secret", ""])
def test_a_revision_is_no_path(revision):
    with pytest.raises(UserError, match="must be a branch, a tag or a commit of the hub"):
        checked_revision(revision)
