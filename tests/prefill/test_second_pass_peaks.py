"""The counted peak of a second pass is what really lives beside the first pass: windows, readers, states, latents."""

import pytest

from kvbench.prefill import ContextFrame, FullPrefill, Needs, PrefillState, Reconstruction, reconstruct
from tests.support.hybrids import hybrid_model
from tests.support.latents import latent_model
from tests.support.living import Living
from tests.support.sliding import sliding_model
from tests.support.tiny import prompt, tiny_model

N = 150  # far beyond the windows with their slack
MODELS = {
    "llama": tiny_model,
    "gemma3": lambda: sliding_model("gemma3"),
    "gemma3n_text": lambda: hybrid_model("gemma3n_text"),  # layers with readers
    "lfm3": lambda: hybrid_model("lfm3"),  # convolutions, whose states are computed again where the context ends early
    "qwen3_next": lambda: hybrid_model("qwen3_next"),
    "deepseek_v3": latent_model,
}


@pytest.mark.parametrize("family", MODELS)
@pytest.mark.parametrize("end", [N, 120])
def test_the_peak_of_a_second_pass_is_what_lived(family, end, monkeypatch):
    model, how = MODELS[family](), Reconstruction(chunk=50, requests=None)
    living, peaks = Living(monkeypatch), []

    def both() -> PrefillState:
        state = FullPrefill().run(model, prompt(N), Needs(reconstructions=frozenset([how])))
        living.most = 0  # the second pass alone
        peaks.append(reconstruct(model, prompt(N), state, how, ContextFrame(end=end)))
        return state

    measured = living.most_while(both)
    assert peaks == [measured] and measured > 0
