"""vLLM in a separate process, for worker_loop.py. It imports only the standard library and vllm."""

import os
from typing import Any

SURROUNDINGS = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # the engine runs in this process and ends with it
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
}


def in_short(error: Exception) -> str:
    """The error's lines without the address of the manual of pydantic, which checks vLLM's settings."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return "; ".join(line for line in lines if not line.startswith("For further information"))


def tensors_in(caches: Any) -> list[Any]:
    """The tensors of all layers' caches, in lists whose nesting depends on the version."""
    if not isinstance(caches, list | tuple):
        return [caches]
    return [tensor for cache in caches for tensor in tensors_in(cache)]


class Worker:
    def __init__(self, settings: dict[str, Any]) -> None:
        os.environ.update(SURROUNDINGS, OMP_NUM_THREADS=str(settings["threads"]))
        os.environ["VLLM_CPU_KVCACHE_SPACE"] = str(settings["cache_gib"])
        import vllm

        self.vllm = vllm
        flags = {"speculative_config": settings["speculative"], "attention_backend": settings["attention_backend"]}
        self.model = vllm.LLM(
            model=settings["model"],
            revision=settings["revision"],
            dtype=settings["dtype"],
            kv_cache_dtype=settings["kv_cache_dtype"],
            max_model_len=settings["context"],
            max_logprobs=settings["top"],
            enforce_eager=True,
            enable_prefix_caching=settings["prefix_caching"],
            seed=0,
            **{name: value for name, value in flags.items() if value is not None},
        )

    def about(self) -> dict[str, Any]:
        engine = self.model.llm_engine
        runner = engine.model_executor.driver_worker.worker.model_runner
        return {
            "version": self.vllm.__version__,
            "reported_bytes": sum(tensor.nbytes for tensor in tensors_in(runner.kv_caches)) or None,
            "vocabulary": engine.model_config.get_vocab_size(),
            "dtype": str(engine.model_config.dtype).removeprefix("torch."),
        }

    def ask(self, ids: list[int], **rules: Any) -> Any:
        params = self.vllm.SamplingParams(temperature=0.0, repetition_penalty=1.0, detokenize=False, **rules)
        (output,) = self.model.generate([{"prompt_token_ids": ids}], params, use_tqdm=False)
        return output

    def complete(
        self, ids: list[int], max_new_tokens: int, stops: list[int], at_least_one: bool, top: int
    ) -> dict[str, Any]:
        """Greedy tokens until a stop token, which is left out; and the likeliest tokens at each place, including the
        stop token's."""
        rules = {"max_tokens": max_new_tokens, "min_tokens": int(at_least_one), "stop_token_ids": stops}
        output = self.ask(ids, ignore_eos=True, logprobs=top or None, **rules)
        answer = output.outputs[0]
        tokens = list(answer.token_ids)
        tokens = tokens[: next((place for place, token in enumerate(tokens) if token in stops), len(tokens))]
        tops = [likeliest(place) for place in answer.logprobs[: len(tokens) + 1]] if top else None
        return {"tokens": tokens, "top": tops, "prompt_tokens": len(output.prompt_token_ids)}

    def follow(self, ids: list[int], tokens: list[int], top: int) -> dict[str, Any]:
        """The likeliest tokens at the place of each of `tokens`, read in one pass with the prompt."""
        return {"top": self.score(ids, tokens, top)["top"]}

    def score(self, ids: list[int], tokens: list[int], top: int) -> dict[str, Any]:
        """The log-probability of each of `tokens` and the likeliest tokens at its place, in a pass with the prompt."""
        output = self.ask([*ids, *tokens], max_tokens=1, ignore_eos=True, prompt_logprobs=top)
        places = output.prompt_logprobs[len(ids) :]
        logs = [place[token].logprob for token, place in zip(tokens, places, strict=True)]
        tops = [likeliest(place) for place in places]
        return {"logprobs": logs, "top": tops, "read": len(output.prompt_token_ids)}


def likeliest(place: dict[int, Any]) -> dict[str, float]:
    """Log-probabilities by token. vLLM adds the text's token if it is not among the requested likeliest tokens."""
    return {f"token_id:{token}": entry.logprob for token, entry in place.items()}
