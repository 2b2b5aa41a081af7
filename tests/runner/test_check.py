"""`kvbench check`: each rule finds a method that breaks it, and the documentation's own method breaks none."""

from dataclasses import dataclass, field

import pytest
import torch

from kvbench.evaluation.cache_checks import RuleBroken
from kvbench.evaluation.settings import Setting
from kvbench.methods import DenseLayer, Eviction, Kept, Method, Needs, Scoring, Selection
from kvbench.runner.method_rules import RULES, TOKENS, Trial, rules_of
from tests.support.command import kvbench
from tests.support.my_decoding import LargeValues
from tests.support.my_method import KeyNorm, MyMethod
from tests.support.paths import ROOT

pytestmark = pytest.mark.heavy


@dataclass
class Recent(Method):
    """The last tokens; the classes below break one rule each."""

    kept: float = 1.0

    def compress_layer(self, layer, index, num_layers, budget):
        k = min(int(budget * self.kept), layer.n)
        keys, values = (x[:, layer.n - k :].clone() for x in (layer.keys, layer.values))
        return self.store(layer, keys, values, Kept.tokens(min(int(budget), layer.n), k, layer.n, len(keys)))

    def store(self, layer, keys, values, kept):
        return DenseLayer(keys, values, layer.n, kept)


class Hoarder(Recent):
    def store(self, layer, keys, values, kept):
        made = super().store(layer, keys, values, kept)
        made.spare = layer.keys.clone()
        return made


class Boastful(Recent):
    def least_share(self, element_bytes, layer=None):
        return 1.25


class Writer(Recent):
    def store(self, layer, keys, values, kept):
        layer.values.mul_(0.5)
        return super().store(layer, keys, values, kept)


class Forgetful(Recent):
    def store(self, layer, keys, values, kept):
        return PromptOnly(keys, values, layer.n, kept)


class PromptOnly(DenseLayer):
    """Counts no decoded token."""

    def get_seq_length(self):
        return min(self.seen, TOKENS)


class Random(Recent):
    def store(self, layer, keys, values, kept):
        return super().store(layer, keys, values + torch.randn_like(values), kept)


class Overflowing(Recent):
    def store(self, layer, keys, values, kept):
        return super().store(layer, keys, values if values.dtype == torch.float32 else values / 0, kept)


class Short(Recent):
    def store(self, layer, keys, values, kept):
        if layer.n < 8:
            raise IndexError("no window")
        return super().store(layer, keys, values, kept)


class Impatient(Recent):
    """Counts the layers that it has seen, and drops values once a second one comes."""

    layers = 0

    def compress_layer(self, layer, index, num_layers, budget):
        Impatient.layers += 1
        made = super().compress_layer(layer, index, num_layers, budget)
        if Impatient.layers % 8 > 4:
            made.v.buffer.zero_()
        return made


@dataclass
class Undefined(KeyNorm):
    def votes(self, layer):
        votes = super().votes(layer)
        return votes if votes.dtype == layer.keys.dtype else votes.masked_fill(votes < votes.mean(), float("nan"))


BROKEN = {
    "a budget of the whole prompt gives FullKV's tokens": (Recent(kept=0.25), r"\d+ of 12 tokens are FullKV's"),
    "it keeps at most its budget, and reports how much": (
        Recent(kept=1.5),
        r"layer 0: it keeps 18 tokens per head, but its share of the budget is 12",
    ),
    "its bytes are those of the tensors that it lists": (
        Hoarder(),
        r"hold 122,880 bytes that tensors\(\) does not list",
    ),
    "its bytes are at least those of its least_share": (
        Boastful(),
        r"float32, with a budget of 12: it stores 0.100 of FullKV's bytes, but its least_share makes at least 0.125",
    ),
    "it does not change the prefill state": (Writer(), "compressing changed 4 tensors of the prefill state"),
    "decoding continues at true positions": (Forgetful(), "layer 0: get_seq_length is 120 after 131 tokens"),
    "the same prompt gives the same tokens each time": (
        Random(),
        "with a budget of 12, compressing the same prompt again gives other tokens",
    ),
    "it takes prompts of any length from 1 token on": (Short(), "no window"),
    "logits stay finite in float16 and bfloat16": (
        Overflowing(),
        "float16: the logits of generated token 1 are not finite",
    ),
    "no vote of its scorer is NaN": (
        MyMethod(scoring=Undefined()),
        r"float16, layer 0: Undefined.votes has \d+ NaN",
    ),
    "memory=stream gives the same tokens": (Impatient(), "memory=stream gives other tokens than memory=shared"),
}


@pytest.fixture(scope="module")
def model():
    return Trial(Setting("recent", Recent(), "")).model


def trial(method, model) -> Trial:
    made = Trial(Setting("mine", method, ""))
    made.model = model
    return made


def test_every_rule_has_a_method_that_breaks_it():
    assert set(BROKEN) == set(RULES)


@pytest.mark.parametrize("words", BROKEN)
def test_a_rule_names_what_a_method_does_that_breaks_it(words, model):
    method, message = BROKEN[words]
    torch.manual_seed(0)
    with pytest.raises((RuleBroken, IndexError), match=message):
        RULES[words](trial(method, model))


@pytest.mark.heavy
@pytest.mark.parametrize("method", [Recent(), MyMethod(), MyMethod(granularity="kv_head"), LargeValues()], ids=repr)
def test_plain_methods_break_none(method, model):
    for rule in rules_of(trial(method, model)).values():
        rule(trial(method, model))


def test_the_rule_of_votes_is_for_methods_with_a_scorer(model):
    assert set(RULES) - set(rules_of(trial(Recent(), model))) == {"no vote of its scorer is NaN"}


@dataclass
class NoNeeds(Scoring):
    """It reads queries, and has forgotten to request them."""

    def protected(self, budget):
        return 8

    def votes(self, layer):
        return layer.window_votes(32)


@dataclass
class Forgot(Eviction):
    scoring: Scoring = field(default_factory=NoNeeds)


@dataclass
class FewNeeds(NoNeeds):
    """It reads 32 queries and requests 8."""

    needs = Needs(window=8)


@dataclass
class ForgotMore(Eviction):
    scoring: Scoring = field(default_factory=FewNeeds)


@pytest.mark.parametrize(
    "method, said", [("Forgot", "reads queries"), ("ForgotMore", "reads 32 queries, and 8 were observed")]
)
def test_queries_that_are_read_and_not_requested_are_named_with_the_needs_to_set(method, said, monkeypatch, capsys):
    """Votes over 8 queries would pass for votes over 32, until another method of the run requests more."""
    monkeypatch.setenv("COLUMNS", "200")
    assert kvbench("check", f"tests.runner.test_check.{method}") == 1
    printed = capsys.readouterr().out
    assert f": NoNeeds.votes {said}: set `needs = Needs(window=32)`\n" in printed and "Error" not in printed


@dataclass
class Wide(KeyNorm):
    recent: int = 300


@dataclass
class WideWindow(Eviction):
    scoring: Scoring = field(default_factory=Wide)


def test_a_window_wider_than_the_prompt_makes_the_prompt_longer(model):
    made = trial(WideWindow(), model)
    assert made.n == 903 and made.budgets == [301, 632]
    RULES["it keeps at most its budget, and reports how much"](made)


def test_the_command_prints_a_line_for_each_rule(monkeypatch, capsys):
    monkeypatch.chdir(ROOT / "tests" / "support")
    monkeypatch.syspath_prepend(".")
    assert kvbench("check", "my_method.MyMethod", "+method.granularity=kv_head") == 0
    told = capsys.readouterr().out.splitlines()
    assert told[0].startswith("MyMethod on a random model of 4 layers") and told[-1] == "every rule holds"
    assert told[1:-1] == [f"holds  {words}" for words in RULES]


def test_a_broken_rule_is_exit_code_1_and_an_error_names_its_line(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "200")
    assert kvbench("check", "tests.runner.test_check.Short") == 1
    told = capsys.readouterr().out
    line = next(line for line in told.splitlines() if line.startswith("broken it takes prompts of any length"))
    assert line.startswith("broken it takes prompts of any length from 1 token on: IndexError in test_check.py, line ")
    assert line.endswith(": no window") and told.splitlines()[-1] == "1 rule broken"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "the following arguments are required: METHOD (kvbench check --help)"),
        (["snapkw"], "unknown method 'snapkw'. Did you mean 'snapkv'?"),
        (["nowhere.Method"], "nowhere.Method: there is no module 'nowhere' in this folder"),
        (["snapkv", "method.snapkv.scoring.windw=4"], "unknown key 'windw'. Did you mean 'window'?"),
    ],
)
def test_a_mistake_is_one_line(arguments, message, capsys):
    assert kvbench("check", *arguments) == 2
    assert message in capsys.readouterr().err


def test_an_exception_that_breaks_several_rules_is_printed_once(monkeypatch, capsys):
    def fails(self, layer, index, num_layers, budget):
        raise IndexError("no window")

    monkeypatch.setattr(MyMethod, "compress_layer", fails)
    assert kvbench("check", "tests.support.my_method.MyMethod") == 1
    printed = capsys.readouterr().out
    assert printed.count("no window") == 1 and printed.count(": the same as for ") >= 5


@dataclass
class FailsLate(LargeValues):
    """Keeps the prompt's tokens as it should, and raises at the first reduction while decoding."""

    def select(self, layer, budget):
        indices = super().keep(layer, budget, layer.n)
        return Selection.everything(layer) if indices is None else Selection(indices, budget)

    def keep(self, layer, target, seen):
        raise IndexError("while decoding")


def test_a_method_is_tried_until_it_reduces_its_caches_while_decoding(capsys):
    """12 decoded tokens did not reach the first reduction of a method that makes one after 16."""
    assert kvbench("check", "tests.runner.test_check.FailsLate") == 1
    assert "IndexError in test_check.py, line " in capsys.readouterr().out
