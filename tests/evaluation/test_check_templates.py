"""Chat templates and prompts: thinking that nobody chose, answers without an end, templates written twice."""

import copy
import json
from dataclasses import replace

import pytest

from kvbench.benchmarks import Sample
from kvbench.errors import UserError
from kvbench.evaluation.check_templates import check_templates
from kvbench.models import LoadedModel, ModelSpec, load, load_texts
from kvbench.runner.manifest import folder_identity
from tests.models.test_load_template_args import QWEN3, with_template
from tests.support.runs import compose

PLAIN = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant: "
LLAMA2 = "{% for m in messages %}{% if m.role == 'user' %}[INST] {{ m.content }} [/INST]{% else %} {{ m.content }} "


def sample(prompt: str, **fields) -> Sample:
    return Sample("s", prompt, ("x",), 4, **fields)


def lines(capsys, loaded, prompts=("Hello",), thinking=False) -> str:
    check_templates(loaded, "niah", [sample(prompt) for prompt in prompts], thinking)
    return " ".join(capsys.readouterr().err.split())


def test_a_template_whose_switch_for_thinking_nobody_set_is_one_line(embedded, capsys):
    said = lines(capsys, with_template(embedded, QWEN3))
    assert "has a switch for thinking that is not set" in said
    assert "'model.template_args={enable_thinking: false}' is what niah is for" in said
    assert "'model.template_args={enable_thinking: true}'" in lines(
        capsys, with_template(embedded, QWEN3), thinking=True
    )


@pytest.mark.parametrize(("on", "wanted"), [(True, False), (False, True)])
def test_thinking_that_the_benchmark_is_not_for_is_one_line(embedded, capsys, on, wanted):
    loaded = with_template(embedded, QWEN3, enable_thinking=on)
    assert f"and enable_thinking is {str(on).lower()}" in lines(capsys, loaded, thinking=wanted)
    assert not lines(capsys, loaded, thinking=on)


def test_nothing_is_said_of_a_template_that_fits_or_of_raw_text(embedded, capsys):
    assert not lines(capsys, embedded)
    check_templates(with_template(embedded, QWEN3), "niah", [sample("Hello", chat=False)], False)
    assert not capsys.readouterr().err


@pytest.mark.parametrize(
    ("benchmark", "thinks"), [("math500", True), ("aime", True), ("niah", False), ("longbench", False)]
)
def test_presets_think_where_the_benchmark_asks_for_it(benchmark, thinks):
    """MATH-500 and AIME ran without thinking, and docs/benchmarks.md said the contrary."""
    cfg = compose("model=qwen3-8b", f"benchmark={benchmark}")
    assert cfg.model.template_args == {"enable_thinking": thinks}
    off = compose("model=qwen3-8b", f"benchmark={benchmark}", "model.template_args.enable_thinking=false")
    assert off.model.template_args == {"enable_thinking": False}
    own = compose("model=qwen3-8b", "benchmark=jsonl", "benchmark.path=x", f"benchmark.thinking={str(thinks).lower()}")
    assert own.model.template_args == {"enable_thinking": thinks}


def test_what_a_benchmark_says_of_thinking_is_no_part_of_the_identity(embedded):
    """Folders of earlier versions go on: the template's arguments alone decide."""
    cfg = compose("benchmark=math500")
    assert cfg.benchmark["thinking"] is True
    assert "thinking" not in folder_identity(cfg, embedded, [])["benchmark"]


def test_a_template_that_ends_answers_with_a_token_that_does_not_stop_is_one_line(embedded, capsys):
    """Such a model wrote on past the end of its turn, unseen."""
    loaded = copy.copy(embedded)
    loaded.stop_tokens = frozenset({0})
    said = lines(capsys, loaded)
    assert "ends an answer with '<|im_end|>', which is no stop token" in said
    assert "'model.stop_tokens=[\"<|im_end|>\"]'" in said
    loaded.stop_tokens = frozenset({0, 2})
    assert not lines(capsys, loaded)
    assert not lines(capsys, with_template(embedded, PLAIN))  # no special token: nothing can stop there


def test_named_stop_tokens_end_answers_and_are_part_of_the_identity(tiny_folder):
    spec = ModelSpec(name="tiny", max_length=64, path=str(tiny_folder))
    more = replace(spec, stop_tokens=["<|im_start|>", 7])
    assert load(spec).stop_tokens == {2}
    assert load(more).stop_tokens == load_texts(more).stop_tokens == {1, 2, 7}
    cfg = compose("question=visible")
    plain, named = (folder_identity(cfg, load_texts(one), []) for one in (spec, more))
    assert named["stop_tokens"] == ["<|im_start|>", 7] and "stop_tokens" not in plain
    with pytest.raises(UserError, match=r"model\.stop_tokens: '<\|nowhere\|>' is not a token of tiny"):
        load_texts(replace(spec, stop_tokens=["<|nowhere|>"]))
    for wrong in ([], [True], [1.5]):
        with pytest.raises(UserError, match=r"model\.stop_tokens=.* must be a list of tokens"):
            replace(spec, stop_tokens=wrong)


def test_a_tokenizer_that_ends_raw_text_is_refused(embedded):
    """Its prompts ended with the end of the text, and the answer began behind it."""
    tokenizer = copy.deepcopy(embedded.tokenizer)
    processed = json.loads(tokenizer.backend_tokenizer.to_str())
    processed["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "<|im_end|>", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"<|im_end|>": {"id": "<|im_end|>", "ids": [2], "tokens": ["<|im_end|>"]}},
    }
    tokenizer._tokenizer = type(tokenizer.backend_tokenizer).from_str(json.dumps(processed))
    loaded = LoadedModel(embedded.spec, embedded.model, tokenizer, embedded.source)
    with pytest.raises(UserError, match=r"appends '<\|im_end\|>' to a raw text") as error:
        loaded.encode("Hello", chat=False)
    assert "\n" not in str(error.value)
    assert loaded.encode("Hello", chat=True).equal(embedded.encode("Hello", chat=True))


@pytest.mark.parametrize(
    ("template", "prompt"),
    [
        (None, "<|im_start|>system\nYou are helpful<|im_end|>\n<|im_start|>user\nA long text.<|im_end|>\n"),
        (None, " <|im_start|>user\nA long text.<|im_end|>\n<|im_start|>assistant\nThe answer is"),
        (f"{LLAMA2}{{% endif %}}{{% endfor %}}", "[INST] A long text. [/INST] The answer is"),
    ],
)
def test_a_prompt_that_carries_the_template_already_is_refused(embedded, template, prompt):
    """RULER's files for a chat model got a second template."""
    loaded = with_template(embedded, template) if template else embedded
    with pytest.raises(UserError, match=r"written twice: model\.chat_template=none reads prompts as they are"):
        check_templates(loaded, "ruler", [sample("Hello"), sample(prompt)], False)
    raw = copy.copy(loaded)
    raw.spec = replace(loaded.spec, chat_template="none")
    check_templates(raw, "ruler", [sample(prompt)], False)


def test_prompts_that_contain_special_tokens_are_one_line(embedded, capsys):
    said = lines(capsys, embedded, ("Hello", "What does <|im_end|> mean?"))
    assert "1 prompt of 2 contain '<|im_end|>'" in said and "model.chat_template=none" in said
