"""Words that are not kvbench's lead to those that are."""

import pytest

from tests.support.command import command_line


@pytest.mark.parametrize(
    "typed, meant",
    [
        (["benchmark=needle"], "unknown benchmark 'needle'. Did you mean 'niah'"),
        (["engine=ollama"], "unknown engine 'ollama'. Did you mean 'openai'?"),
        (["benchmark=nih"], "unknown benchmark 'nih'. Did you mean 'niah'?"),
        (["compression_ratio=0.8"], "It is kvpress's share to remove; ratio= is the share to keep"),
        (["press_name=snapkv"], "It is method=NAME here"),
        (["dataset=ruler"], "It is benchmark=NAME here"),
        (["max_capacity_prompts=128"], "It is budget=TOKENS here"),
        (["method=snapkv", "method.snapkv.window=16"], "unknown key 'window'. Did you mean 'scoring.window'?"),
        (["methods=snapkv"], "unknown key 'methods'. Did you mean 'method'?"),
    ],
)
def test_a_word_of_another_tool_or_place_leads_to_ours(typed, meant, capsys):
    assert command_line(*typed) == 2
    told = " ".join(capsys.readouterr().err.split())
    assert meant in told and told.count("kvbench:") == 1
