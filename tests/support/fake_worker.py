"""A worker process in the place of llama.cpp's: the same lines, by the standard library alone.

Its first answer follows the settings; MODE in the folder of its Python says how it misbehaves. Run as
kvbench/engines/llama_worker.py is, by a Python that stands for an environment.
"""

import json
import os
import signal
import sys
import time

VOCABULARY = 4096


def tokens_of(question: dict) -> list[int]:
    start = sum(question["ids"])
    return [100 + (start + 31 * place) % 3000 for place in range(question["max_new_tokens"])]


def complete(question: dict) -> dict:
    tokens = tokens_of(question)
    top = [{f"token_id:{token}": -0.1} for token in tokens] if question["top"] else None
    return {"tokens": tokens, "top": top, "prompt_tokens": len(question["ids"])}


def follow(question: dict) -> dict:
    return {"top": [{f"token_id:{token}": -0.3} for token in question["tokens"]]}


def main(mode: str) -> None:
    settings = json.loads(sys.stdin.readline())
    if mode == "refuses":
        print(json.dumps({"error": f"llama_init_from_model: no {settings['k']} here"}), flush=True)
        return
    vocabulary = 7 if mode == "other model" else VOCABULARY
    print(json.dumps({"version": "9.9", "reported_bytes": 1000, "vocabulary": vocabulary}), flush=True)
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
        print(json.dumps({"complete": complete, "follow": follow}[question.pop("do")](question)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
