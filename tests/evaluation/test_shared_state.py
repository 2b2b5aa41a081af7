"""A class of a user's that writes into the prefill state ends the run, before another setting reads what it wrote."""

from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch

from kvbench.errors import UserError
from kvbench.evaluation.shared_state import fingerprint
from kvbench.methods import Dense, DenseLayer, Eviction, Method, Needs, Scoring, Selection
from kvbench.records.store import RECORDS
from tests.support.runs import arguments, outcomes, run

HERE = "tests.evaluation.test_shared_state"
ONE = ("benchmark.depths=[0]", "benchmark.max_new_tokens=4", "ratio=0.5", "method=[snapkv,h2o]")


@dataclass
class Halves(Method):
    """Keeps the first tokens, and halves the values of all."""

    def compress_layer(self, layer, index, num_layers, budget):
        layer.values.mul_(0.5)
        return Dense().store(layer, Selection(torch.arange(budget).expand(len(layer.keys), -1), budget))


class HalvedLater(DenseLayer):
    """Halves values of the prompt, which it has not copied, with each decoded token."""

    batches = False

    def attend(self, query, scaling):
        self.shared.mul_(0.5)
        return super().attend(query, scaling)


@dataclass
class Later(Method):
    """Keeps the first tokens, in caches that write."""

    def compress_layer(self, layer, index, num_layers, budget):
        selection = Selection(torch.arange(budget).expand(len(layer.keys), -1), budget)
        cache = HalvedLater(selection.of(layer.keys), selection.of(layer.values), layer.n, selection.kept(layer))
        cache.shared = layer.values
        return cache


@dataclass
class Sums(Scoring):
    """Writes infinite votes over the first of the sums that H2O reads, too."""

    needs = Needs(column_sums=True)

    def votes(self, layer):
        layer.column_sums[:, :4] = float("inf")
        return layer.column_sums


@dataclass
class SumsMethod(Eviction):
    scoring: Scoring = field(default_factory=Sums)


@dataclass
class Sinks(Scoring):
    """Keeps sinks by the helper that every scoring has, of votes that SnapKV reads, too."""

    sinks: int = 4
    window: int = 32
    needs = Needs(window=32)

    def votes(self, layer):
        return self.keep_sinks(layer.window_votes(32))


@dataclass
class SinksMethod(Eviction):
    scoring: Scoring = field(default_factory=Sinks)


@pytest.mark.parametrize(
    ("method", "name"), [("Halves", "Halves"), ("SumsMethod", "Sums or SumsMethod"), ("Later", "Later")]
)
def test_a_method_that_writes_the_shared_state_is_named_and_no_record_has_what_it_wrote(
    method, name, tiny_folder, tmp_path
):
    with pytest.raises(UserError, match=f"^{name} wrote into the prefill state"):
        run(*arguments(tiny_folder, tmp_path, *ONE, f"+method.mine._target_={HERE}.{method}"))
    assert not any(path.stat().st_size for path in Path(tmp_path).rglob(RECORDS))


def test_what_no_other_setting_reads_later_may_be_written(tiny_folder, tmp_path):
    alone = run(*arguments(tiny_folder, tmp_path, *ONE, "method=[]", f"+method.mine._target_={HERE}.Later"))
    assert len(outcomes(alone)) == 1


def test_votes_with_sinks_change_no_other_settings_answers(tiny_folder, tmp_path):
    mine = f"+method.a={{_target_: {HERE}.SinksMethod}}"
    again = "+method.b={_target_: kvbench.methods.Eviction}"  # SnapKV's scoring, after the method that writes
    beside = run(*arguments(tiny_folder, tmp_path / "beside", *ONE, "method=[]", mine, again))
    alone = run(*arguments(tiny_folder, tmp_path / "alone", *ONE, "method=[]", again))
    assert set(map(str, outcomes(alone))) < set(map(str, outcomes(beside)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.bool, torch.int64])
def test_a_fingerprint_sees_each_element_and_the_order_of_rows(dtype):
    plain = (torch.rand(2, 5, 4, generator=torch.Generator().manual_seed(0)) * 9).to(dtype)
    plain[0, 0, 0], plain[0, 1, 0] = 1, 0
    changed, turned = plain.clone(), plain.clone()
    changed[1, 3, 2] = 0 if plain[1, 3, 2] else 1
    turned[0] = plain[0].flip(0)
    before, after = fingerprint([plain, plain]), fingerprint([changed, plain])
    assert not torch.equal(before[0], after[0]) and torch.equal(before[1], after[1])
    assert not torch.equal(before[0], fingerprint([turned])[0])
