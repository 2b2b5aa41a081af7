"""The configuration as a typed object: its keys are those of conf/config.yaml, and each mistake is one line."""

import copy
import subprocess
import sys

import pytest

from kvbench.configuration import Configuration, configured
from kvbench.configuration.configuration import check_some, every_key
from kvbench.errors import UserError
from tests.support.paths import ROOT
from tests.support.runs import compose

SECTIONS = {"decode", "prefill", "wandb"}


def test_the_keys_are_those_of_the_files():
    plain = compose().plain
    inside = {f"{node}.{key}" for node in SECTIONS for key in plain[node]}
    assert {*every_key()} == {*plain} | inside


@pytest.mark.parametrize("key", sorted({*every_key()} - {"model", "benchmark"}))
def test_a_key_that_is_missing_or_of_another_kind_is_one_line(key):
    plain = copy.deepcopy(compose().plain)
    node, _, name = key.rpartition(".")
    inside = plain[node] if node else plain
    inside[name] = {5: [{}]} if key in ("ratio", "budget") else [{}]
    with pytest.raises(UserError, match=rf"^({key}=.* must be |unknown {key} '\[{{}}\]'. Allowed: )"):
        Configuration.from_plain(plain)
    del inside[name]
    with pytest.raises(UserError, match=rf"^{key} is missing: leave out ~{key}$"):
        Configuration.from_plain(plain)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("decode=null", "decode=None must be a mapping {KEY: VALUE}"),
        ("decode=5", "decode=5 must be a mapping {KEY: VALUE}"),
        ("prefill=null", "prefill=None must be a mapping {KEY: VALUE}"),
        ("wandb=x", "wandb='x' must be a mapping {KEY: VALUE}"),
        ("output_dir={a: 1}", "output_dir={'a': 1} must be a text"),
        ("decode.compress=5", "decode.compress=5 must be a mapping {KEY: VALUE} or null"),
        ("limit=99999999999999999999999", "limit: a whole number has at most 18 digits, not 23"),
        ("budget=[64,-1000000000000000000]", "budget: a whole number has at most 18 digits, not 19"),
        ("benchmark.depths=[1000000000000000000]", "benchmark.depths: a whole number has at most 18 digits, not 19"),
        ("limit=0", "limit=0 must be an integer of at least 1"),
        ("limit=true", "limit=True must be an integer of at least 1"),
        ("prefill.chunk=1.5", "prefill.chunk=1.5 must be an integer of at least 1"),
        ("decode.batch=0", "decode.batch=0 must be auto, all or an integer of at least 1"),
        ("question=hiden", "unknown question 'hiden'. Did you mean 'hidden'? Allowed: hidden, visible"),
        ("kernels=null", "unknown kernels 'None'. Allowed: auto, torch, triton"),
        ("kernels=false", "unknown kernels 'false'. Allowed: auto, torch, triton"),
        ("distance=1", "unknown distance '1'. Allowed: auto, false, true"),
        ("shards=0", "shards=0 must be an integer from 1 to 4096"),
        ("shards=4097", "shards=4097 must be an integer from 1 to 4096"),
        ("shard=1", "shard=1 must be from 0 to 0 with shards=1"),
        ("~model", "no model is chosen: model=NAME"),
        ("~benchmark", "no benchmark is chosen: benchmark=NAME"),
        ("model.device=gpu", "model.device='gpu' must be auto or a device of torch: cpu, cuda or cuda:0"),
        ("+decode.size=1", "unknown key in decode 'size'. Allowed: batch, compress, engine"),
        ("model=hf", "model=hf needs a model: model=org/name on the hub, or model=/folder or /file.gguf"),
    ],
)
def test_a_mistake_is_one_line(override, message):
    with pytest.raises(UserError) as error:
        configured([override])
    assert str(error.value) == message


def test_a_value_has_its_type():
    cfg = configured(["ratio=[0.5,1]", "distance=true", "decode.batch=4", "limit=999999999999999999", "+own.key=1"])
    assert (cfg.ratio, cfg.budget) == ([0.5, 1.0], None) and cfg.limit == 10**18 - 1
    assert cfg.distance is True and configured(["distance='false'"]).distance is False
    assert cfg.decode.batch == "4" and cfg.wandb.mode == "disabled"
    assert cfg.plain["own"] == {"key": 1}  # a key of the user's own stays, where interpolations find it


def test_a_change_is_checked_and_leaves_the_original():
    cfg = compose("limit=2")
    changed = cfg.changed(limit=3, model={**cfg.plain["model"], "device": "cuda:1"})
    assert (changed.limit, changed.model.device, changed.plain["limit"]) == (3, "cuda:1", 3)
    assert (cfg.limit, cfg.model.device, cfg.plain["limit"]) == (2, "auto", 2)
    assert changed.changed(limit=2, model=cfg.plain["model"]) == cfg != changed
    with pytest.raises(UserError, match=r"^limit=0 must be"):
        cfg.changed(limit=0)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"ratio": 20}, r"ratio 20 is outside"),
        ({"ratio": 0.1, "budget": 3}, "exclude each other"),
        ({"wandb.mode": "x"}, "^unknown wandb.mode 'x'"),
        ({"limit": "x"}, "^limit='x' must be"),
        ({"prefill.chunk": 0}, "^prefill.chunk=0 must be"),
    ],
)
def test_values_are_checked_before_the_rest_is_known(values, message):
    with pytest.raises(UserError, match=message):
        check_some(values)
    check_some({"question": "hidden", "method": "snapkv", "decode.batch": 2, "own": 1})


def test_it_is_parsed_without_torch():
    code = "import sys; from kvbench.configuration import configured"
    code += "; configured(['model=qwen3-8b', 'model.device=cuda:0'])"
    code += "; assert not {'torch', 'transformers', 'pandas'} & {*sys.modules}"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
