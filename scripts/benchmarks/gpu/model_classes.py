"""Every causal-LM class of transformers as a tiny random model: what it computes on the device and on the CPU."""

import copy

import torch

from kvbench.errors import UserError
from kvbench.evaluation.decode import generate
from kvbench.methods import FullKV
from kvbench.utils.text import first_line
from scripts.benchmarks.gpu.models import prefilled_ids, token_ids
from scripts.benchmarks.gpu.presets import repeated
from scripts.results.tiny_models.outcome import taking_attention

N, NEW = 120, 12  # with the further tokens of `repeated`, within every class's positions
LOGITS = 1e-3  # the largest difference over the largest logit


@torch.inference_mode()
def of_class(model_type: str, device: str) -> dict:
    """FullKV's logits and tokens in float32 on both; `absent` where the class is refused or has no tiny model."""
    try:
        model = taking_attention(model_type)
        ids = token_ids(N, model.config.get_text_config().vocab_size)
        state = prefilled_ids(model, ids)
        expected = generate(model, state.whole(FullKV().compress(state, N)), state.logits, NEW, frozenset())
    except UserError as error:
        return {"absent": str(error)}
    except Exception as error:  # which classes can be made is asked on a CPU: scripts/results/model_classes.py
        return {"absent": f"{type(error).__name__}: {first_line(error)}"}
    model = model.to(device)
    state_on_device = prefilled_ids(model, ids)
    caches = state_on_device.whole(FullKV().compress(state_on_device, N))
    answer = generate(model, copy.deepcopy(caches), state_on_device.logits, NEW, frozenset())
    return {
        "logits": float((state_on_device.logits.cpu() - state.logits).abs().max() / state.logits.abs().max()),
        "tokens": answer.tokens,
        "cpu_tokens": expected.tokens,
        "close_call": expected.close_call,
        **({} if state_on_device.fixed_layers else repeated(model, caches, state_on_device.logits)),
    }
