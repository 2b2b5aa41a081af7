"""`kvbench calibrate`: scores of heads that look at a needle, in a file that is never overwritten."""

import json

import pytest
import torch

from kvbench.benchmarks import NeedleInAHaystack
from kvbench.evaluation.retrieval_scores import layer_scores, retrieval_scores, tokens_of
from kvbench.methods import WholeHeads
from kvbench.methods.heads.head_scores import read_head_scores
from tests.support.command import kvbench
from tests.support.tiny import random_layer

pytestmark = pytest.mark.heavy


def test_a_heads_score_is_its_attention_to_the_needle_among_what_it_attends_to_most():
    layer = random_layer(6, 2, 30, window=3)
    needle = torch.tensor([4, 5, 20])
    logits = layer.queries @ layer.keys.repeat_interleave(3, 0).mT * layer.scaling
    for head, score in enumerate(layer_scores(layer, 3, needle).tolist()):
        total = 0.0
        for row in range(3):
            weights = logits[head, row, : 28 + row].softmax(-1)
            best = weights.topk(3).indices.tolist()
            total += sum(weights[i].item() for i in best if i in (4, 5, 20))
        assert score == pytest.approx(total / 3, abs=1e-6)


def test_the_tokens_of_the_answer_are_found_in_the_prompt(embedded):
    benchmark = NeedleInAHaystack(lengths=[300], depths=[50])
    (sample,) = benchmark.samples(embedded.tokenizer)
    ids, needle = tokens_of(embedded, sample)
    assert embedded.decode(ids[needle].tolist()).strip() == sample.answers[0]
    scores, used = retrieval_scores(embedded, benchmark, [sample])
    assert used == [sample.id] and len(scores) == 30 and len(scores[0]) == 9
    assert min(map(min, scores)) >= 0 and 0.1 < max(map(max, scores)) <= 1.5


def test_the_command_writes_a_file_once(tmp_path, capsys):
    file = tmp_path / "scores.json"
    arguments = ["calibrate", file, "benchmark.lengths=[300]", "benchmark.depths=[50]"]
    assert kvbench(*arguments) == 0
    assert f"1 prompt of 1 answered; scores of 30 layers in {file}" in capsys.readouterr().out
    contents = json.loads(file.read_text())
    assert contents["samples"] == ["number-300-50-0"] and contents["model_config"]["hub_id"]
    assert "not DuoAttention's trained gates" in contents["about"]
    assert read_head_scores(str(file)).model == "smollm2-135m"
    before = file.read_bytes()
    assert kvbench(*arguments) == 2 and file.read_bytes() == before
    assert "never overwritten" in capsys.readouterr().err


def test_kvzips_scores_are_of_kv_heads_and_a_method_reads_them(tmp_path, capsys):
    file = tmp_path / "scores.json"
    assert kvbench("calibrate", file, "scores=kvzip", "benchmark.lengths=[300]", "benchmark.depths=[50]") == 0
    assert "1 prompt of 1 read again; scores of 30 layers" in capsys.readouterr().out
    scores = read_head_scores(str(file))
    assert scores.over == "kv_heads" and len(scores.scores[0]) == 3 and "KVzip" in scores.about
    assert min(map(min, scores.scores)) > 0 and max(map(max, scores.scores)) <= 1
    assert WholeHeads(str(file))._scores == scores


@pytest.mark.parametrize(
    "arguments, said",
    [
        ([], "the following arguments are required: FILE (kvbench calibrate --help)"),
        (["a=b"], "argument FILE: 'a=b' is KEY=VALUE, which comes later"),
        (["file.json", "scores=duo"], "scores=duo: there are retrieval and kvzip"),
        (["file.json", "benchmark=ruler"], "benchmark=ruler: benchmark=niah makes the prompts"),
    ],
)
def test_a_mistake_is_one_line(arguments, said, capsys):
    assert kvbench("calibrate", *arguments) == 2
    assert said in capsys.readouterr().err
