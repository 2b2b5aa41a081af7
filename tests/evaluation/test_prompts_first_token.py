"""`first_token=full|compressed`: whether the first generated token saw the whole prompt."""

import json

import pytest
import torch

from kvbench.benchmarks import Sample
from kvbench.errors import UserError
from kvbench.evaluation.check_samples import check_samples
from kvbench.evaluation.decode import batched, read
from kvbench.evaluation.prompts import tokenise
from kvbench.prefill import prefill
from kvbench.records import load
from tests.evaluation.test_prompts import sample
from tests.support.config import method
from tests.support.given import Given
from tests.support.runs import arguments, compose, reported, run
from tests.support.tiny import prompt, tiny_model


class Unlimited(Given):
    """A benchmark that does not know its longest prompt, as the user's own prompts."""

    longest = None


@pytest.mark.parametrize("chat", [True, False])
def test_the_last_token_is_parted_from_the_same_prompt(embedded, chat):
    full = tokenise(embedded, sample(chat=chat), "visible")
    compressed = tokenise(embedded, sample(chat=chat), "visible", "compressed")
    assert len(full.question) == 0 and len(compressed.question) == 1
    assert torch.equal(full.context, torch.cat([compressed.context, compressed.question]))


def test_a_prompt_of_one_token_leaves_nothing_to_compress_and_is_refused_before_the_first_sample(embedded):
    one = Sample("a", "a", ("x",), 2, chat=False)
    assert len(tokenise(embedded, one, "visible").context) == 1
    with pytest.raises(UserError, match="sample 'a' has a prompt of one token, which first_token=compressed reads"):
        check_samples(embedded, Unlimited([one]), [one], "visible", first_token="compressed")


@pytest.mark.heavy
def test_a_run_refuses_it_before_it_makes_records(tiny_folder, tmp_path):
    (tmp_path / "rows.jsonl").write_text('{"context": "a", "answers": ["x"]}\n')
    rows = ["benchmark=jsonl", f"benchmark.path={tmp_path}/rows.jsonl", "benchmark.chat=false", "method=full"]
    given = [f"model.path={tiny_folder}", "model.shape=null", "model.max_length=400", f"output_dir={tmp_path}/runs"]
    with pytest.raises(UserError, match=r"rows.jsonl, row 1: sample '1' has a prompt of one token"):
        run(*given, *rows, "first_token=compressed")
    assert not (tmp_path / "runs").exists()


def test_a_text_without_tokens_is_refused(embedded):
    with pytest.raises(UserError, match="sample 'a' has no token before its question or answer"):
        tokenise(embedded, Sample("a", "", ("x",), 2, chat=False), "visible")


def test_the_last_token_reads_what_the_method_kept():
    """The logits of the first token are FullKV's where all is kept, and others where tokens are gone."""
    model, ids = tiny_model().double(), prompt(80)
    chosen = method("random")
    state = prefill(model, ids[:-1], chosen.needs)
    expected = prefill(model, ids, chosen.needs).logits
    kept, few = (read(model, batched([chosen.compress(state, budget)]), ids[-1:])[0] for budget in (len(ids), 8))
    assert torch.allclose(kept, expected, atol=1e-6)
    assert not torch.allclose(few, expected, atol=1e-2)


@pytest.fixture(scope="module")
def folders(tiny_folder, tmp_path_factory):
    few = ["method=[full,snapkv]", "ratio=[0.2,1.0]", "benchmark.depths=[0]", "decode.batch=1"]
    out = tmp_path_factory.mktemp("first")
    return [reported(*arguments(tiny_folder, out, *few, *more)) for more in ([], ["first_token=compressed"])]


@pytest.mark.heavy
def test_both_protocols_have_a_folder_and_their_records_say_which(folders):
    full, compressed = map(load, folders)
    assert folders[0] != folders[1]
    assert set(full["full_cache_tokens"]) == {1} and set(compressed["full_cache_tokens"]) == {0}
    assert set(full["question_tokens"]) == {0} and set(compressed["question_tokens"]) == {1}
    assert (compressed["prompt_tokens"] == full["prompt_tokens"] - 1).all()
    manifest = json.loads(next((folders[1] / "manifests").glob("*.json")).read_text())
    assert manifest["first_token"] == "compressed" and manifest["config"]["first_token"] == "compressed"
    assert "first token through the compressed cache" in (folders[1] / "table.md").read_text()
    assert "first token" not in (folders[0] / "table.md").read_text()


@pytest.mark.heavy
def test_a_budget_of_the_whole_prompt_answers_as_fullkv(folders):
    for frame in map(load, folders):
        assert frame["close_call"].isna().all(), "rounding could turn a token"
        tokens = dict(zip(frame["setting"], frame["tokens"], strict=True))
        assert tokens["snapkv 1"] == tokens["full"]
    first, again = (dict(zip(frame["setting"], frame["tokens"], strict=True)) for frame in map(load, folders))
    assert first["full"] == again["full"]


@pytest.mark.parametrize(
    "more, message",
    [
        (["first_token=half"], "first_token 'half'.*compressed, full"),
        (["first_token=compressed", "question=hidden"], "leave first_token out"),
        (["first_token=compressed", "probe=lazy_mass"], "leave first_token=compressed out"),
    ],
)
def test_what_it_cannot_mean_is_refused_before_anything_is_loaded(more, message):
    with pytest.raises(UserError, match=message):
        compose(*more)
