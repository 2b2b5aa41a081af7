"""Words that are not kvbench's lead to those that are."""

import pytest

from tests.support.command import command_line

PLUS = "'granularity'. A parameter of the class in method._target_ needs a plus sign: +method.granularity=…"


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
        (["method._target_=my.Method", "method.granularity=layer"], PLUS),
        (["method=full", "method.granularity=layer", "method._target_=my.Method"], PLUS),
        (["method=[snapkv,snapkv]"], "method 'snapkv' is named twice"),
        (["methods=snapkv"], "unknown key 'methods'. Did you mean 'method'?"),
        (["benchmark.path=conftest.py"], "unknown key 'path'. It is a key of benchmark=jsonl or benchmark=text."),
        (
            ["benchmark.tasks=[qasper]"],
            "It is a key of benchmark=babilong or benchmark=infinitebench or benchmark=longbench",
        ),
        (["method.snapkv.scoring.window=16"], "It is a method that is not chosen: add method=snapkv"),
        (["method=SnapKV"], "unknown method 'SnapKV'. Did you mean 'snapkv'?"),
        (["--compression_ratio", "0.8"], "unknown option '--compression_ratio'. It is kvpress's share to remove"),
        (["query_aware=true"], "It is question=visible here"),
        (["data_dir=4096"], "It is benchmark.length=4096 of benchmark=ruler_kvpress here"),
        (["tests"], "tests is a folder: kvbench report tests writes a page of its runs"),
        (["my tests"], "my tests is a folder: kvbench report 'my tests' writes a page of its runs"),
    ],
)
def test_a_word_of_another_tool_or_place_leads_to_ours(typed, meant, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tests").mkdir()
    (tmp_path / "my tests").mkdir()
    (tmp_path / "conftest.py").touch()
    assert command_line(*typed) == 2
    told = " ".join(capsys.readouterr().err.split())
    assert meant in told and told.count("kvbench:") == 1
