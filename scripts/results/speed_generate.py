"""transformers' `generate` on the prompt of `benchmark=speed`: one line of JSON with seconds, for `speed_qwen.py`.

The prompt is read twice and the second time counts, as `benchmark=speed` measures once before its rounds.
"""

import argparse
import json
import time

import torch
from transformers import AutoModelForCausalLM
from transformers.generation.streamers import BaseStreamer

from kvbench.models.embedded import embedded_folder
from scripts.results.speed_prompt import MODEL, prompt


class Clock(BaseStreamer):
    """When each token was there; `generate` puts the prompt first."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def put(self, value: torch.Tensor) -> None:
        self.times.append(time.perf_counter())

    def end(self) -> None:
        pass


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--length", type=int, required=True, help="tokens of the prompt")
    parser.add_argument("--new-tokens", type=int, required=True)
    options = parser.parse_args()
    model = AutoModelForCausalLM.from_pretrained(embedded_folder(MODEL.package), dtype=torch.bfloat16).eval()
    ids = torch.tensor([prompt(options.length)])
    new = {"max_new_tokens": options.new_tokens, "min_new_tokens": options.new_tokens, "do_sample": False}
    for _ in range(2):
        clock = Clock()
        model.generate(ids, attention_mask=torch.ones_like(ids), streamer=clock, **new)
    started, first, *_, last = clock.times
    steps = len(clock.times) - 2  # passes behind the first token
    print(json.dumps({"prefill_seconds": first - started, "decode_tokens_per_s": steps / (last - first)}))


if __name__ == "__main__":
    main()
