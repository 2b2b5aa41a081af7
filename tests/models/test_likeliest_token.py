"""What a model's generation configuration changes in the choice of tokens, which kvbench does not follow, is said."""

import json
import shutil

import pytest

from kvbench.models import ModelSpec, load, load_texts

SAID = "generation configuration of mine has {}, which `generate` follows and kvbench does not"


@pytest.fixture
def said(tiny_folder, tmp_path, capsys):
    """The words about a model with these fields in its generation configuration."""

    def loaded(load=load, **fields) -> str:
        folder = shutil.copytree(tiny_folder, tmp_path / "model")
        (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": 2} | fields))
        load(ModelSpec("mine", path=str(folder), max_length=512, device="cpu"))
        return capsys.readouterr().err

    return loaded


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("repetition_penalty", 1.1),
        ("no_repeat_ngram_size", 3),
        ("suppress_tokens", [5]),
        ("begin_suppress_tokens", [5]),
        ("bad_words_ids", [[5, 6]]),
        ("min_new_tokens", 4),
        ("min_length", 4),
        ("forced_bos_token_id", 5),
        ("forced_eos_token_id", 2),
        ("sequence_bias", [[[5], -1.0]]),
        ("guidance_scale", 1.5),
        ("num_beams", 4),
    ],
)
def test_a_field_with_which_generate_chooses_other_tokens_is_named(said, field, value):
    assert SAID.format(f"{field}={value}") in said(**{field: value})


def test_all_of_them_are_named_in_one_line_without_the_others(said):
    fields = {"do_sample": True, "temperature": 0.7, "repetition_penalty": 1.05, "min_new_tokens": 2}
    lines = [line for line in said(**fields).splitlines() if "generation configuration" in line]
    assert len(lines) == 1 and SAID.format("min_new_tokens=2, repetition_penalty=1.05") in lines[0]


def test_nothing_is_said_of_fields_for_drawn_tokens_or_without_an_effect(said):
    drawn = {"do_sample": True, "temperature": 0.6, "top_k": 20, "top_p": 0.95, "min_p": 0.1}
    idle = {"repetition_penalty": 1.0, "min_new_tokens": 0, "num_beams": 1, "renormalize_logits": True}
    assert said(**drawn, **idle, bos_token_id=1, pad_token_id=0, max_length=4096) == ""


@pytest.mark.parametrize(("field", "value"), [("repetition_penalty", 1.1), ("min_new_tokens", 4), ("num_beams", 4)])
def test_it_is_said_where_an_engine_has_the_weights_too(said, field, value):
    """Engines are asked for the likeliest token without penalties, whatever their model's configuration has."""
    assert SAID.format(f"{field}={value}") in said(load_texts, **{field: value})


def test_nothing_is_said_of_an_engines_model_without_such_fields(said):
    assert said(load_texts, do_sample=True, temperature=0.6, top_p=0.95) == ""
