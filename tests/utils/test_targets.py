"""Classes that configurations name: found and checked before anything is called."""

from dataclasses import dataclass, field

import pytest

from kvbench.benchmarks import Benchmark
from kvbench.engines import Engine
from kvbench.errors import UserError
from kvbench.methods import Eviction, FullKV, KNorm, Method, Scoring
from kvbench.probes import Probe
from kvbench.utils.targets import build, class_of
from tests.support.config import NAMES, method_configs

CALLED = []
HERE = "tests.utils.test_targets"


def notes(*args, **options):
    """A function that a configuration must not be able to call."""
    CALLED.append((args, options))


class Notes:
    """A class that makes no method, with an effect when it is built."""

    def __init__(self, **options):
        CALLED.append(options)


@dataclass
class Several(Method):
    """A method with nodes in a list, and a parameter that says nothing about its class."""

    scorers: list[Scoring] = field(default_factory=list)
    anything: object = None
    options: dict = field(default_factory=dict)

    def compress_layer(self, layer, index, num_layers, budget):
        raise NotImplementedError


class NoScore(Benchmark):
    """A benchmark that forgets two of three methods."""

    def samples(self, tokenizer):
        return []


@dataclass
class NoVotes(Scoring):
    """A scoring that forgets its only method."""


@dataclass
class ShortVotes(KNorm):
    """A scoring that forgets an argument."""

    def votes(self):
        return None


@dataclass
class LongVotes(ShortVotes):
    """One that takes kvbench's argument and may take more, unlike its own base."""

    def votes(self, layer, more=None):
        return None


@dataclass
class Scores(Eviction):
    scoring: Scoring = field(default_factory=ShortVotes)


@pytest.mark.parametrize(
    ("node", "base", "message"),
    [
        ({"_target_": f"{HERE}.NoScore"}, Benchmark,
         "m: NoScore lacks longest, score, which docs/adding-a-benchmark.md describes"),
        ({"_target_": "kvbench.methods.Eviction", "scoring": {"_target_": f"{HERE}.NoVotes"}}, Method,
         "m, scoring: NoVotes lacks votes, which docs/adding-a-method.md describes"),
        ({"_target_": "kvbench.probes.Probe"}, Probe, "Probe lacks observe, quantity, which docs/api.md describes"),
        ({"_target_": "kvbench.engines.Engine"}, Engine, "which docs/plug-ins.md describes"),
    ],
)  # fmt: skip
def test_a_class_that_lacks_methods_is_refused_and_its_guide_named(node, base, message):
    with pytest.raises(UserError) as error:
        build(node, "m", base)
    assert message in str(error.value)


def test_a_function_of_other_arguments_than_kvbenchs_is_refused_in_a_class_that_a_default_made_too():
    """It was a traceback once the first prompt was read."""
    with pytest.raises(UserError, match=r"^m: ShortVotes\.votes\(self\) is called as votes\(layer\): too many"):
        build({"_target_": f"{HERE}.Scores"}, "m", Method)
    build({"_target_": f"{HERE}.Scores", "scoring": {"_target_": f"{HERE}.LongVotes"}}, "m", Method)


def test_a_file_that_python_cannot_parse_is_named_with_its_line(tmp_path, monkeypatch):
    """It was told that there is no such module in this folder."""
    (tmp_path / "half_written.py").write_text("x = 1\ndef votes(:\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UserError, match=r"cannot be imported: SyntaxError in half_written\.py, line 2: invalid syntax"):
        build({"_target_": "half_written.Mine"}, "m", Method)


@pytest.mark.parametrize(
    ("node", "message"),
    [
        ({"_target_": f"{HERE}.notes"}, f"{HERE}.notes is not a subclass of kvbench.methods.Method"),
        ({"_target_": f"{HERE}.Notes"}, f"{HERE}.Notes is not a subclass of kvbench.methods.Method"),
        ({"_target_": "os.abort"}, "os.abort is not a subclass of kvbench.methods.Method"),
        ({"_target_": "kvbench.methods.Uniform"}, "Uniform is not a subclass of kvbench.methods.Method"),
        (
            {"_target_": "kvbench.methods.Eviction", "scoring": {"_target_": f"{HERE}.notes"}},
            f"m, scoring: {HERE}.notes is not a subclass of kvbench.methods.Scoring",
        ),
        (
            {"_target_": "kvbench.methods.Eviction", "storage": {"_target_": "kvbench.methods.Uniform"}},
            "m, storage: kvbench.methods.Uniform is not a subclass of kvbench.methods.Storage",
        ),
        (
            {"_target_": "kvbench.methods.Eviction", "decode_compression": {"_target_": f"{HERE}.Notes"}},
            "Notes is not a subclass of kvbench.methods.DecodeCompression",
        ),
        (
            {
                "_target_": "kvbench.methods.Eviction",
                "scoring": {"_target_": "kvbench.methods.CriticalKV", "base": {"_target_": f"{HERE}.notes"}},
            },
            f"m, scoring, base: {HERE}.notes is not a subclass of kvbench.methods.Scoring",
        ),
        ({"_target_": f"{HERE}.Several", "scorers": [{"_target_": f"{HERE}.notes"}]}, "m, scorers: "),
        (
            {"_target_": f"{HERE}.Several", "options": {"deep": [{"_target_": f"{HERE}.notes"}]}},
            f"m, options: {HERE}.notes is not a subclass of builtins.dict",
        ),
        (
            {"_target_": f"{HERE}.Several", "anything": {"_target_": f"{HERE}.Notes"}},
            "Notes is not a subclass of anything: its parameter is not annotated with a class",
        ),
        (
            {"_target_": f"{HERE}.Several", "scorer": {"_target_": f"{HERE}.Notes"}},
            "m: unknown parameter of Several 'scorer'. Did you mean 'scorers'? Allowed: anything, options, scorers",
        ),
        ({"_target_": "kvbench.methods.LagKV", "scoring": {"a": 1}}, "m: unknown parameter of LagKV 'scoring'"),
        ({"_target_": 5}, "m: _target_=5 must be a class as module.Class"),
        ({"_target_": ".relative"}, ".relative must be a class as module.Class"),
    ],
)
def test_what_is_no_class_of_its_place_is_not_called(node, message):
    CALLED.clear()
    with pytest.raises(UserError) as error:
        build(node, "m", Method)
    assert message in str(error.value)
    assert not CALLED


def test_parts_are_classes_of_their_parameters():
    node = {"_target_": "kvbench.methods.Eviction", "scoring": {"_target_": "kvbench.methods.KNorm"}}
    assert class_of(node, "m", Method) is Eviction
    assert type(build(node, "m", Method).scoring).__name__ == "KNorm"
    listed = {"_target_": f"{HERE}.Several", "scorers": [{"_target_": "kvbench.methods.KNorm"}]}
    assert [type(one).__name__ for one in build(listed, "m", Method).scorers] == ["KNorm"]
    untold = {"_target_": f"{HERE}.Several", "options": {"_target_": "builtins.dict", "a": {"b": 1}}}
    assert build(untold, "m", Method).options == {"a": {"b": 1}}


def test_values_are_plain_and_built_afresh():
    """A text is a text, however it would be resolved, and an object shares nothing with its configuration."""
    options = {"a": ["${oc.env:HOME}", "\\${b}", {"c": 1e-3}], "_args_": [1]}
    node = {"_target_": f"{HERE}.Several", "_convert_": "all", "options": options}
    made = build(node, "m", Method)
    assert made.options == options and made.options is not options and made.options["a"][2] is not options["a"][2]
    for special in ("_partial_", "_recursive_", "_args_"):
        with pytest.raises(UserError, match=f"unknown parameter of Several '{special}'"):
            build({"_target_": f"{HERE}.Several", special: True}, "m", Method)


def test_names_are_looked_up_where_they_may_not_be_imported():
    def find(name):
        asked.append(name)
        return {"a": Several, "b": KNorm}[name]

    asked: list[str] = []
    made = build({"_target_": "a", "scorers": [{"_target_": "b"}]}, "m", Method, find)
    assert type(made) is Several and type(made.scorers[0]) is KNorm and asked == ["a", "b"]
    with pytest.raises(UserError, match="m, scorers: "):
        build({"_target_": "a", "scorers": [{"_target_": "kvbench.methods.KNorm"}]}, "m", Method, find)


def test_every_preset_names_classes_of_their_places():
    found = {name: class_of(node, name, Method) for name, node in method_configs(*NAMES).items()}
    assert found["full"] is FullKV and len(found) > 40
