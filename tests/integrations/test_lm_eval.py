"""lm-eval's tasks with kvbench's models: FullKV scores as lm-eval's own Hugging Face model, document for document.

Needs lm-eval with all its dependencies, which `make test` has only as files; `make test-integrations` installs them.
"""

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from kvbench.errors import UserError
from kvbench.evaluation.decode import batched, generate, read, read_all
from kvbench.integrations.lm_eval import command as host
from kvbench.methods import H2O, FullKV
from kvbench.prefill import Needs, prefill
from tests.support.command import kvbench
from tests.support.needs import needs
from tests.support.tiny import prompt, tiny_model

try:
    host.register()
    from lm_eval import simple_evaluate
    from lm_eval.api.registry import get_model
    from lm_eval.tasks import TaskManager

    WHY = ""
except UserError as error:
    WHY = str(error)
lacking = needs("lm-eval", WHY and f"{WHY}; make test-integrations installs it")


def guest(test):
    """A test within lm-eval."""
    return pytest.mark.integrations(lacking(test))


CAPITALS = ["France Paris", "Italy Rome", "Egypt Cairo", "Japan Tokyo", "Peru Lima", "Kenya Nairobi", "Chad Ndjamena"]
NOISE = "The ferry left at nine, the harbour was quiet, and the gulls circled over the nets. " * 2
TASKS = {
    "capitals_generated": """
        output_type: generate_until
        doc_to_text: "{{noise}}Question: What is the capital of {{country}}?\\nAnswer: The capital of {{country}} is"
        doc_to_target: " {{capital}}."
        generation_kwargs: {until: ["\\n", ". "], max_gen_toks: 12, do_sample: false}
        metric_list: [{metric: exact_match, aggregation: mean, higher_is_better: true}]
    """,
    "capitals_chosen": """
        output_type: multiple_choice
        doc_to_text: "{{noise}}Question: What is the capital of {{country}}?\\nAnswer:"
        doc_to_choice: "{{choices}}"
        doc_to_target: "{{choices.index('The city of ' + capital)}}"
        metric_list:
          - {metric: acc, aggregation: mean, higher_is_better: true}
          - {metric: acc_norm, aggregation: mean, higher_is_better: true}
    """,
    "capitals_text": """
        output_type: loglikelihood_rolling
        doc_to_text: ""
        doc_to_target: "{{capital}} is the capital of {{country}}, and no other city is."
        metric_list: [{metric: word_perplexity, aggregation: weighted_perplexity, higher_is_better: false}]
    """,
}


@pytest.fixture(scope="module")
def tasks(tmp_path_factory) -> Path:
    """A folder with three small tasks over one handful of documents."""
    folder = tmp_path_factory.mktemp("tasks")
    pairs = [line.split() for line in CAPITALS]
    choices = [f"The city of {capital}" for _, capital in pairs]
    rows = [{"country": a, "capital": b, "noise": NOISE, "choices": choices} for a, b in pairs]
    (folder / "test.jsonl").write_text("\n".join(map(json.dumps, rows)))
    for name, body in TASKS.items():
        text = "\n".join(line[8:] for line in body.splitlines())
        data = {"dataset_kwargs": {"data_files": {"test": str(folder / "test.jsonl")}}, "test_split": "test"}
        head = f"task: {name}\ndataset_path: json\n" + "".join(f"{key}: {json.dumps(data[key])}\n" for key in data)
        (folder / f"{name}.yaml").write_text(head + text)
    return folder


def evaluate(tasks: Path, model: str, arguments: dict | str, *names: str, **more) -> dict:
    manager = TaskManager(include_path=str(tasks), include_defaults=False)
    return simple_evaluate(
        model, model_args=arguments, tasks=list(names), task_manager=manager, bootstrap_iters=0, device="cpu", **more
    )


def answers(result: dict, task: str) -> list:
    """What the model answered, document by document: texts, or pairs of log-probability and greediness."""
    samples = sorted(result["samples"][task], key=lambda sample: sample["doc_id"])
    return [response for sample in samples for (response,) in sample["resps"]]


@pytest.fixture(scope="module")
def both(tasks, embedded) -> tuple[dict, dict]:
    """All tasks by lm-eval's own model and by kvbench's FullKV, from the same folder."""
    theirs = evaluate(tasks, "hf", {"pretrained": embedded.source, "dtype": "float32"}, *TASKS)
    return theirs, evaluate(tasks, "kvbench", {"method": "full", "pretrained": embedded.source}, *TASKS)


@guest
def test_fullkv_scores_as_lm_evals_own_model(both):
    theirs, ours = both
    scores = [
        {f"{task} {name}": value for task, values in result["results"].items() for name, value in values.items()}
        for result in both
    ]
    perplexity = "capitals_text word_perplexity,none"
    assert scores[0].pop(perplexity) == pytest.approx(scores[1].pop(perplexity), rel=1e-4)
    assert scores[0] == scores[1]
    assert 0 < ours["results"]["capitals_generated"]["exact_match,none"] < 1
    assert 0 < ours["results"]["capitals_chosen"]["acc,none"] < 1
    assert ours["config"]["kvbench_r_bytes"] == 1.0
    assert theirs["config"]["model_dtype"] == ours["config"]["model_dtype"] == torch.float32


@guest
def test_fullkv_answers_every_document_as_lm_evals_own_model(both):
    theirs, ours = both
    assert answers(ours, "capitals_generated") == answers(theirs, "capitals_generated")
    assert len(set(answers(ours, "capitals_generated"))) > 3
    chosen = [answers(result, "capitals_chosen") for result in both]
    assert len(chosen[0]) == len(CAPITALS) ** 2
    assert [greedy for _, greedy in chosen[0]] == [greedy for _, greedy in chosen[1]]
    assert [p for p, _ in chosen[1]] == pytest.approx([p for p, _ in chosen[0]], abs=2e-3)
    rolling = [answers(result, "capitals_text") for result in both]
    assert rolling[1] == pytest.approx(rolling[0], abs=2e-3)


@guest
def test_chat_templates_are_lm_evals(tasks, embedded):
    given = ("capitals_generated",), {"apply_chat_template": True, "limit": 3}
    theirs = evaluate(tasks, "hf", {"pretrained": embedded.source, "dtype": "float32"}, *given[0], **given[1])
    ours = evaluate(tasks, "kvbench", "method=full,model=smollm2-135m", *given[0], **given[1])
    assert answers(ours, "capitals_generated") == answers(theirs, "capitals_generated")
    sent = ours["samples"]["capitals_generated"][0]["arguments"]
    assert "<|im_start|>" in str(sent)


@guest
def test_a_compressing_method_answers_from_its_caches(tasks, both):
    names = ("capitals_generated", "capitals_chosen")
    result = evaluate(tasks, "kvbench", "method=snapkv,ratio=0.3,method.snapkv.scoring.window=8", *names, limit=3)
    full = [answers(both[1], name)[: len(answers(result, name))] for name in names]
    assert [answers(result, name) for name in names] != full
    assert all(math.isfinite(p) for p, _ in answers(result, "capitals_chosen"))
    assert result["config"]["kvbench_setting"] == "snapkv 0.3"
    assert '"window": 8' in result["config"]["kvbench_parameters"]
    assert 0.28 < result["config"]["kvbench_r_bytes"] <= 0.3
    assert result["config"]["kvbench_r"] == pytest.approx(result["config"]["kvbench_r_bytes"])


def log_probabilities(context: list[int], **arguments) -> list[float]:
    """Those of one-token continuations of a context."""
    lm = get_model("kvbench").create_from_arg_obj({"model": "smollm2-135m", "dtype": "float32"} | arguments)
    requests = [(None, context, [token]) for token in range(300, 330)]
    return [p for p, _ in lm._loglikelihood_tokens(requests, disable_tqdm=True)]


@guest
def test_a_choice_of_one_token_is_read_through_the_compressed_cache(embedded):
    """As of MMLU's letters: the prefill's logits, which saw everything, would be FullKV's at any ratio."""
    context = embedded.plain_tokens(NOISE * 2 + "The answer is")
    model = AutoModelForCausalLM.from_pretrained(embedded.source, attn_implementation="sdpa", dtype="float32")
    with torch.inference_mode():
        plain = model(input_ids=torch.tensor([context])).logits[0, -1].log_softmax(-1)[300:330].tolist()
    full = log_probabilities(context, method="full")
    assert full == pytest.approx(plain, abs=2e-3)
    assert log_probabilities(context, method="random", ratio=1.0) == pytest.approx(full, abs=2e-3)
    few = log_probabilities(context, method="random", ratio=0.05)
    assert min(abs(a - b) for a, b in zip(few, full, strict=True)) > 0.01


@guest
def test_a_context_of_one_token_is_scored(embedded):
    (token,) = embedded.plain_tokens("The")
    assert all(math.isfinite(p) for p in log_probabilities([token], method="full"))


@guest
def test_a_share_of_prompt_and_answer_counts_the_answer(embedded):
    """decode.compress.of=total, as in the harness: n tokens and the new ones."""
    lm = get_model("kvbench").create_from_arg_obj(
        {"method": "knorm", "ratio": 0.5, "decode.compress": "{every: 4, of: total}"}
    )
    budgets = []
    budget_at = lm.setting.budget_at
    object.__setattr__(lm, "setting", Spied(lm.setting, lambda *a: budgets.append(budget_at(*a)) or budgets[-1]))
    lm._loglikelihood_tokens([(None, list(range(300, 341)), list(range(400, 440)))], disable_tqdm=True)
    assert budgets == [int(0.5 * (40 + 41))]


class Spied:
    """A setting whose `budget_at` is another one."""

    def __init__(self, setting, budget_at):
        self.setting, self.budget_at = setting, budget_at

    def __getattr__(self, name):
        return getattr(self.setting, name)


@guest
@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"method": "snapkv"}, "one setting at a time, not snapkv 0.2, snapkv 0.4: one method="),
        ({"method": "snapkv", "ratio": 2}, r"ratio 2 is outside \(0, 1\]"),
        ({"method": "full", "prefill.chunk": 64}, "prefill.chunk=64 has no effect for lm-eval, which reads method,"),
        ({"batch_size": 4}, "batch_size=4: kvbench compresses one context at a time"),
        ({"batch_size": "auto"}, "batch_size=auto: kvbench compresses one context at a time"),
        ({"pretrained": "/nowhere"}, "pretrained=/nowhere: "),
        ({"trust_remote_code": True}, "runs no code from a model's repository"),
    ],
)
def test_arguments_that_mean_nothing_here_are_refused(arguments, message):
    with pytest.raises(UserError, match=message):
        get_model("kvbench").create_from_arg_obj(arguments)


@guest
def test_a_mistake_on_the_command_line_is_one_line(tasks, monkeypatch, capsys):
    command = ["--model", "kvbench", "--model_args", "method=snapkw,ratio=0.2", "--tasks", "capitals_text"]
    monkeypatch.setattr(sys, "argv", sys.argv)  # lm-eval reads it
    assert kvbench("lm_eval", *command, "--include_path", tasks) == 2
    assert "unknown method 'snapkw'. Did you mean 'snapkv'?" in capsys.readouterr().err.splitlines()[-1]


@guest
@pytest.mark.parametrize(
    "task, arguments, more, message",
    [
        ("capitals_text", "method=streaming_llm,ratio=0.5", {}, "streaming_llm 0.5 cannot run tasks with rolling"),
        ("capitals_text", "method=full,storage@method.full.storage=kivi", {}, "full cannot run tasks with rolling"),
        ("capitals_generated", "method=full", {"gen_kwargs": "num_beams=3"}, "num_beams=3: kvbench decodes greedily"),
        ("capitals_generated", "method=full", {"gen_kwargs": "do_sample=True"}, "do_sample=True: kvbench decodes"),
    ],
)
def test_what_compressed_caches_cannot_do_is_refused(tasks, task, arguments, more, message):
    with pytest.raises(UserError, match=message):
        evaluate(tasks, "kvbench", arguments, task, limit=1, **more)


@guest
def test_the_command_is_lm_evals_with_one_model_more(tasks, tmp_path):
    command = [sys.executable, "-m", "kvbench", "lm_eval", "--model", "kvbench", "--tasks", "capitals_chosen"]
    command += ["--model_args", "method=streaming_llm,ratio=0.5", "--include_path", str(tasks), "--limit", "2"]
    done = subprocess.run([*command, "--output_path", str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "|capitals_chosen|" in done.stdout
    (path,) = tmp_path.rglob("results_*.json")
    config = json.loads(path.read_text())["config"]
    assert config["kvbench_setting"] == "streaming_llm 0.5"
    assert 0.49 < config["kvbench_r_bytes"] <= 0.5


def test_without_lm_eval_one_line_tells_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "lm_eval.models", None)
    with pytest.raises(
        UserError, match=r"pip install -c constraints.txt -c constraints-lm-eval.txt 'kvbench\[lm-eval\]'"
    ):
        host.register()


@pytest.mark.parametrize("method", [FullKV(), H2O(decode="update")], ids=["blocks", "one by one"])
def test_reading_gives_the_logits_after_every_token(method):
    model, ids, more = tiny_model(), prompt(40), prompt(7, seed=1)

    def caches(budget):
        return method.compress(prefill(model, ids, Needs(column_sums=True)), budget)

    assert batched([caches(40)]).layers[0].blocks == [isinstance(method, FullKV)]
    every = read_all(model, batched([caches(20), caches(20)]), more)
    assert every.shape == (2, 7, 97)
    for end in range(1, 8):
        last = read(model, batched([caches(20)]), more[:end])
        torch.testing.assert_close(every[:1, end - 1], last, atol=1e-4, rtol=1e-4)


def test_a_generation_ends_where_its_tokens_say_so():
    model = tiny_model()
    state = prefill(model, prompt(40), Needs())

    def tokens(**options):
        return generate(model, FullKV().compress(state, 40), state.logits, 12, frozenset(), **options).tokens

    free = tokens()
    assert len(free) == 12
    assert tokens(until=lambda made: len(made) == 5) == free[:5]
    assert tokens(until=lambda made: False) == free
