"""What becomes of one class, in a process of its own that a crash or an endless loop takes with it."""

import json
import os
import signal
import traceback
import warnings
from logging import CRITICAL
from pathlib import Path
from typing import NamedTuple

import torch
from transformers import PreTrainedModel, logging

from kvbench.errors import UserError
from kvbench.evaluation.decode import generate
from kvbench.methods import FullKV
from kvbench.models.attention_interface import ATTENTION
from kvbench.models.reads_alike import takes_attention
from kvbench.prefill import Needs, prefill
from scripts.results.tiny_models.tiny import tiny_model

N, NEW, SECONDS = 40, 12, 120
CLOSE = 1e-3  # of the largest logit


class Outcome(NamedTuple):
    """kind: equal, refused, "not built", and the two faults, "different" and "traceback"."""

    model_type: str
    kind: str
    why: str


def outcome_of(model_type: str) -> Outcome:
    """Of a class's tiny model: FullKV's tokens and logits beside those of `generate`."""
    reader, writer = os.pipe()
    if not (child := os.fork()):
        signal.alarm(SECONDS)
        try:
            os.write(writer, json.dumps(compared(model_type)).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as answer:
        text = answer.read()
    _, status = os.waitpid(child, 0)
    return Outcome(model_type, *(json.loads(text) if text else ("traceback", f"ended by signal {status & 127}")))


def compared(model_type: str) -> tuple[str, str]:
    """kind and why of an `Outcome`."""
    logging.set_verbosity(CRITICAL)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    ids = torch.arange(2, 2 + N) % 90 + 3
    try:
        stock = tiny_model(model_type, "eager")
        expected = stock.generate(ids[None], do_sample=False, max_new_tokens=NEW)[0, N:].tolist()
        with torch.no_grad():
            logits = stock(ids[None]).logits[0, -1]
    except Exception as error:
        return "not built", error_line(error)
    try:
        model = taking_attention(model_type)
        state = prefill(model, ids, Needs())
        tokens = generate(model, state.whole(FullKV().compress(state, N)), state.logits, NEW, frozenset()).tokens
    except UserError as error:
        return "refused", str(error)
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        return "traceback", f"{error_line(error)} ({Path(place.filename).name}:{place.lineno})"
    distance = float((state.logits.flatten() - logits).abs().max() / logits.abs().max())
    return "equal" if tokens == expected and distance < CLOSE else "different", f"logits differ by {distance:.0e}"


def taking_attention(model_type: str) -> PreTrainedModel:
    with takes_attention(model_type):
        return tiny_model(model_type, ATTENTION)


def error_line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:160]}"
