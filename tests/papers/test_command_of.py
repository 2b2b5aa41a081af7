"""The command that stands for a configuration."""

import copy
import shlex
from functools import cache

import pytest

from kvbench.configuration.conf import composed
from kvbench.papers.command_of import command_of
from kvbench.report.page.command_lines import command_lines

pytestmark = pytest.mark.heavy


@cache
def remembered(overrides: tuple[str, ...]) -> dict:
    """`composed` once for all tests, to be read only."""
    return composed(overrides)


@pytest.mark.parametrize(
    "overrides",
    [
        [],
        ["method=spindle", "ratio=[0.1,0.2]", "limit=3"],
        ["+experiment=pyramidkv_table1", "model=smollm2-135m", "method=[full,pyramidkv_paper]", "limit=2"],
        ["model=hf", "benchmark=jsonl", "model.name=x", "model.path=/a/x"],
        ["method=[snapkv,full]", "budget=12", "method.snapkv.scoring.window=8"],
        ["probe=[key_similarity,attention_sparsity]"],
        ["decode.compress={every:128,budget:2048}", "press_args={x:'a b',y:[null,true]}"],
    ],
)
def test_a_command_names_the_files_and_what_differs_from_them(overrides):
    command, exact = command_of(remembered(tuple(overrides)), remembered)
    assert exact and sorted(shlex.split(command)) == sorted(["kvbench", *overrides])


@pytest.mark.parametrize("text", ["it's {x}: [a], b=c", "ends in \\", "\\'", "null", "1e5", "", " a ", "a#b", "é"])
def test_any_text_is_quoted_so_that_the_command_composes_it(text):
    config = copy.deepcopy(remembered(("wandb.project=other",)))
    config["wandb"]["project"] = text
    command, exact = command_of(config, remembered)
    assert exact and remembered(tuple(shlex.split(command)[1:]))["wandb"]["project"] == text


def test_nodes_without_a_file_are_written_out():
    config = remembered(("method=full", "+method.mine._target_=my.Method", "+method.mine.window=3"))
    command, exact = command_of(config, remembered)
    assert exact and "'+method.mine={_target_:my.Method,window:3}'" in command


def test_a_configuration_that_this_version_cannot_compose_is_not_exact():
    config = remembered(("limit=2",))
    older = {key: value for key, value in config.items() if key != "kernels"}
    assert command_of(older, remembered) == ("kvbench limit=2", False)
    assert command_of(config | {"an odd key": 1}, remembered)[1] is False
    assert command_of({"limit": 2})[1] is False


@pytest.mark.parametrize("key", ["hydra", "hydra.callbacks", "+hydra/job_logging", "~limit", "limit=3 x", "a@b", "a,b"])
def test_a_manifest_puts_nothing_but_keys_before_an_overrides_sign(key):
    """A command that somebody copies from a page sets values, and nothing that Hydra reads otherwise."""
    command, exact = command_of({**remembered(("limit=2",)), key: {"evil": {"_target_": "os.getcwd"}}}, remembered)
    assert not exact and "evil" not in command


def test_texts_that_describe_a_node_are_not_compared():
    config = copy.deepcopy(remembered(("+experiment=simlayerkv_table11", "model=llama3-8b", "ratio=0.3")))
    config["method"]["full"]["about"] = config["experiment"]["about"] = "words of an earlier version"
    config["experiment"]["chosen"] = ["a decision in other words"]
    del config["model"]["parameters"], config["method"]["full"]["title"]
    command, exact = command_of(config, remembered)
    assert exact and command == "kvbench +experiment=simlayerkv_table11 model=llama3-8b ratio=0.3"


def test_runs_of_one_configuration_share_a_command():
    configs = [remembered((override,)) for override in ("limit=2", "limit=3", "limit=2")]
    manifests = [{"run": run, "config": config} for run, config in zip("abc", configs, strict=True)]
    assert command_lines([*manifests, {"run": "older"}]) == [
        {"command": "kvbench limit=2", "exact": True, "runs": ["a", "c"]},
        {"command": "kvbench limit=3", "exact": True, "runs": ["b"]},
    ]
