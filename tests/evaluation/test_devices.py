"""Every method and probe on one GPU and on two: the numbers of the CPU, and each layer's cache on its layer's GPU."""

from contextlib import nullcontext
from functools import cache, reduce
from types import SimpleNamespace

import pytest
import torch

from kvbench.benchmarks import Sample, Sampling, Turn
from kvbench.configuration import configured
from kvbench.configuration.conf import choices
from kvbench.evaluation.decode import batched, decode, read
from kvbench.evaluation.prefill_passes import SharedPass, StreamedPass
from kvbench.evaluation.probes import observe
from kvbench.evaluation.prompts import Prompt
from kvbench.evaluation.record import Row
from kvbench.evaluation.sampling import Sampler
from kvbench.evaluation.settings import Setting, build_settings
from kvbench.evaluation.turns import converse
from kvbench.prefill import FullPrefill, Needs, PrefillPlan
from kvbench.probes import build_probes
from tests.support.config import NAMES, method_configs
from tests.support.every_method import HEAD_DIM, LAYERS, small
from tests.support.fake_devices import FakeDevices, device_of, layer_devices, place
from tests.support.representatives import KINDS, REPRESENTATIVES, nightly
from tests.support.tiny import prompt, tiny_model

pytestmark = pytest.mark.heavy

N, QUESTION, STEPS = 90, 3, 4
# What no preset chooses: caches that evict or rotate while decoding, pairs of layers from the first one on.
VARIANTS = {
    "h2o evict": ("method.h2o.decode=update",),
    "minicache pairs": ("method.minicache.storage.start=0",),
    "streaming_llm roll": ("method.streaming_llm.decode=evict", "method.streaming_llm.rope=rolling"),
}


@cache
def configs() -> dict[str, dict]:
    made = method_configs(*NAMES)
    return made | {name: method_configs(name.split()[0], overrides=v)[name.split()[0]] for name, v in VARIANTS.items()}


@cache
def setting(name: str) -> Setting:
    (one,) = build_settings({name: small(configs()[name])}, 0.3, None)
    return one


@cache
def model(gpus: int):
    """A tiny model on fake GPUs; 0 is the CPU."""
    made = tiny_model(num_layers=LAYERS, head_dim=HEAD_DIM)
    return place(made, gpus) if gpus else made


def on(gpus: int):
    return FakeDevices() if gpus else nullcontext()


def plan_of(one: Setting) -> PrefillPlan:
    return one.method.plan(N, LAYERS, one.budget_at(N, LAYERS))


@cache
def shared_pass(gpus: int, plan: PrefillPlan) -> SharedPass:
    """The pass of all methods that have this plan, with what any of them reads; they leave its state as it is."""
    settings = [setting(name) for name in (*REPRESENTATIVES, *VARIANTS)]
    needs = reduce(Needs.__or__, (one.method.needs for one in settings if plan_of(one) == plan))
    with on(gpus):
        return SharedPass(model(gpus), prompt(N), plan, needs)


@cache
def outcome(name: str, gpus: int) -> tuple[list, list]:
    """The tokens that a setting decodes in each way that there is, and the caches that it did so from."""
    one, question = setting(name), prompt(QUESTION, seed=1)
    budget = one.budget_at(N, LAYERS)
    plan = plan_of(one)
    compressing = shared_pass(gpus, plan)
    with on(gpus):
        compressed = compressing.compress(one.method, budget)
        first, second, *others = compressed.copies(4)
        alone, asked, both = batched([first]), batched([second]), batched(others)
        outputs = decode(model(gpus), alone, compressed.logits[None], STEPS, frozenset())
        outputs += decode(model(gpus), asked, read(model(gpus), asked, question), 2, frozenset())
        outputs += decode(model(gpus), both, compressed.logits.expand(2, -1), 3, frozenset())
        caches = [alone, asked, both]
        if one.method.streams:
            streamed = StreamedPass(model(gpus), prompt(N), plan).compress(one.method, budget)
            caches.append(batched([streamed.caches]))
            outputs += decode(model(gpus), caches[-1], streamed.logits[None], 2, frozenset())
    return [output.tokens for output in outputs], caches


# What holds on two GPUs holds on one, unless the model's own code takes another way there.
@pytest.mark.parametrize(
    ("name", "gpus"),
    [
        *((name, 2) for name in (*KINDS[::3], *VARIANTS)),
        *((name, 1) for name in KINDS[::4]),
        *(nightly((name, 2)) for name in REPRESENTATIVES if name not in KINDS[::3]),
    ],
)
def test_a_method_decodes_on_gpus_what_it_decodes_on_a_cpu(name, gpus):
    tokens, caches = outcome(name, gpus)
    assert tokens == outcome(name, 0)[0]
    for held in caches:
        for layer, device in zip(held.layers, layer_devices(model(gpus), gpus), strict=True):
            assert {str(device_of(tensor)) for tensor in layer.tensors()} == {device}


@pytest.mark.parametrize("gpus", [1, 2])
def test_probes_observe_on_gpus_what_they_observe_on_a_cpu(gpus):
    observations = build_probes(configured([f"probe=[{','.join(choices('probe'))}]"]).probe)
    values = []
    for count in (0, gpus):
        with on(count):
            values.append(observe(model(count), prompt(N), N - STEPS, observations))
    assert values[0] == values[1]


@pytest.mark.parametrize("gpus", [1, 2])
def test_tokens_are_drawn_on_gpus_as_on_a_cpu(gpus):
    one = setting("snapkv")
    drawn = []
    for count in (0, gpus):
        with on(count):
            compressed = SharedPass(model(count), prompt(N), FullPrefill(), one.method.needs).compress(one.method, 30)
            sampler = Sampler([Sampling(seed, temperature=1.5, top_p=0.9, top_k=40) for seed in range(3)])
            cache, logits = batched(list(compressed.copies(3))), compressed.logits.expand(3, -1)
            drawn.append([each.tokens for each in decode(model(count), cache, logits, STEPS, frozenset(), sampler)])
    assert drawn[0] == drawn[1]


@pytest.mark.parametrize("gpus", [1, 2])
def test_conversations_go_on_on_gpus_as_on_a_cpu(gpus):
    one, answers = setting("snapkv"), []
    turns = (Turn("", "", STEPS), Turn("", "", STEPS))
    sample = Sample("c", "", (), STEPS, turns=turns, own_answers=True)
    asked = Prompt(sample, prompt(N), prompt(QUESTION, seed=1), (prompt(QUESTION, seed=2), prompt(QUESTION, seed=3)))
    for count in (0, gpus):
        run = SimpleNamespace(
            decode_engine="eager", loaded=SimpleNamespace(model=model(count), stop_tokens=frozenset(), newline=None)
        )
        with on(count):
            compressed = SharedPass(model(count), prompt(N), FullPrefill(), one.method.needs).compress(one.method, 30)
            row = Row(one, asked, compressed, compressed.caches)
            answers.append([output.generation.tokens for _, output in converse(run, row, [asked])])
    assert answers[0] == answers[1] and len(answers[0][0]) == STEPS


@pytest.mark.parametrize("gpus", [1, 2])
def test_tensors_of_two_devices_do_not_mix(gpus):
    with FakeDevices():
        here, there = torch.ones(3, device="cuda:0"), torch.ones(3, device=f"cuda:{gpus - 1}")
        assert str(there.device) == f"cuda:{gpus - 1}" and there.is_cuda
        assert (here.to(there.device) + there).device == there.device
        assert (here * torch.tensor(2.0))[torch.tensor([0])].cpu().tolist() == [2.0]
        if gpus == 2:
            with pytest.raises(RuntimeError, match="several devices: cuda:0, cuda:1"):
                torch.cat([here, there])
            with pytest.raises(RuntimeError, match="several devices"):
                here[there.long()]
        with pytest.raises(RuntimeError, match="several devices: cpu, cuda:0"):
            here + torch.ones(3)
