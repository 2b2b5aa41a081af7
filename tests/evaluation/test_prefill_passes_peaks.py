"""The counted peaks are what really lives: prompts in sliding windows, layers with readers, states, latents."""

from collections.abc import Callable

import pytest
from transformers import PreTrainedModel

from kvbench.evaluation.prefill_passes import SharedPass, StreamedPass, num_layers
from kvbench.prefill import FullPrefill, Needs, PrefillPlan
from kvbench.prefill.chunked import ChunkedPrefill
from tests.support.every_method import setting
from tests.support.hybrids import hybrid_model
from tests.support.latents import latent_model
from tests.support.living import Living
from tests.support.sliding import sliding_model
from tests.support.tiny import prompt, tiny_model

N = 150  # far beyond the windows with their slack
PLANS = {"whole": FullPrefill(), "chunks": ChunkedPrefill(40)}
MODELS: dict[str, Callable[[], PreTrainedModel]] = {
    "llama": tiny_model,
    **{family: lambda family=family: sliding_model(family) for family in ("gemma3", "qwen2", "gpt_oss", "mistral")},
    # readers; convolutions; chunks; states
    **{
        family: lambda family=family: hybrid_model(family)
        for family in ("gemma3n_text", "gemma4_text", "lfm3", "llama4_text", "qwen3_next")
    },
    "deepseek_v3": latent_model,
}


def counted_and_measured(model: PreTrainedModel, plan: PrefillPlan, name: str, memory: str, living: Living):
    """The peak of a prompt's pass and compression, as it is counted and as it was."""
    one = setting(name, 0.2)
    budget, done = one.budget_at(N, num_layers(model, N)), []

    def compress():
        made = SharedPass(model, prompt(N), plan, one.method.needs)
        done.append(made.compress(one.method, budget))
        return made

    def stream():
        done.append(StreamedPass(model, prompt(N), plan).compress(one.method, budget))

    measured = living.most_while({"shared": compress, "stream": stream}[memory])
    return done[0].peak_bytes, measured


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("family", MODELS)
def test_the_peak_of_a_pass_is_what_lived(family, plan, monkeypatch):
    model = MODELS[family]()
    SharedPass(model, prompt(3), FullPrefill(), Needs())  # the first pass finds out how the model rotates
    living = Living(monkeypatch)
    for name in ("full",) if family == "mistral" else ("full", "streaming_llm"):
        for memory in ("shared", "stream"):
            counted, measured = counted_and_measured(model, PLANS[plan], name, memory, living)
            assert counted == measured > 0, (name, memory)
