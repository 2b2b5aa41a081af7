"""A worker process in the place of an engine's: the same lines, by the standard library alone.

Its first answer follows the settings, and the mode says how it misbehaves. Run as kvbench/engines/worker_loop.py is,
by a Python that stands for an environment.
"""

import json
import os
import signal
import sys
import time

TOLD = {"version": "9.9", "reported_bytes": 1000, "vocabulary": 4096, "shape": {}, "windows": False}
OPENVINO = {"genai": "9.8", "token_bytes": 10.5, "block": 32}
VLLM = {"dtype": "float32"}


def tokens_of(question: dict) -> list[int]:
    start = sum(question["ids"])
    return [100 + (start + 31 * place) % 3000 for place in range(question["max_new_tokens"])]


def complete(question: dict) -> dict:
    tokens = question.get("answer") or tokens_of(question)
    top = [{f"token_id:{token}": -0.1} for token in tokens] if question["top"] else None
    return {"tokens": tokens, "top": top, "prompt_tokens": len(question["ids"])}


def follow(question: dict) -> dict:
    return {"top": [{f"token_id:{token}": -0.3} for token in question["tokens"]]}


def score(question: dict) -> dict:
    tokens = question["tokens"]
    logs = [-0.5 - token % 7 / 10 for token in tokens]
    return {"logprobs": logs, "read": len(question["ids"]) + len(tokens), **follow(question)}


def main(mode: str) -> None:
    settings = json.loads(sys.stdin.readline())
    if mode == "refuses":
        kind = next(settings[name] for name in ("k", "precision", "kv_cache_dtype") if name in settings)
        print(json.dumps({"error": f"init_from_model: no {kind} here"}), flush=True)
        return
    wrong = {
        "other model": {"vocabulary": 7},
        "other depth": {"shape": {"num_hidden_layers": 31}},
        "other tokens": {"tokens": ["<unk>"] * 4096},
    }.get(mode, {})
    print(json.dumps({**TOLD, **OPENVINO, **VLLM, **wrong}), flush=True)
    for number, line in enumerate(sys.stdin):
        question = json.loads(line)
        if mode == "dies" and number == 2:
            print("out of memory", file=sys.stderr, flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        if mode == "hangs":
            time.sleep(600)
        if mode == "cannot" and number == 1:
            print(json.dumps({"error": "Requested tokens\nexceed the context"}), flush=True)
            continue
        if mode == "types" and question["do"] == "complete":
            question["answer"] = [1072 if settings["k"] in ("f16", "q8_0") else 338] * question["max_new_tokens"]
        answer = {"complete": complete, "follow": follow, "score": score}[question.pop("do")](question)
        if settings.get("max_cache_size") and "tokens" not in answer:
            answer["top"] = None  # openvino_worker.py follows no answer under eviction
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
