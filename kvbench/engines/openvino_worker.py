"""OpenVINO GenAI in a separate process, for worker_loop.py.

It imports only the standard library, numpy, openvino and openvino_genai.
"""

import re
from typing import Any

BLOCK = 32  # tokens per block of OpenVINO's cache on a CPU
PLACE = re.compile(r" at /\S+:\d+:|\S*\.(cpp|hpp):\d+:?")


def in_short(error: Exception) -> str:
    """The error's lines without file names of OpenVINO's source code."""
    lines = [line for line in str(error).splitlines() if line.strip() and not line.startswith("Exception from ")]
    return PLACE.sub("", "; ".join(lines))


def texts_of(vocabulary: dict[bytes, int]) -> list[str]:
    """The text of each token, in the order of token ids; U+FFFD for an id without a token."""
    texts = ["\ufffd"] * (max(vocabulary.values()) + 1)
    for text, number in vocabulary.items():
        texts[number] = text.decode("utf-8", "replace")
    return texts


class Worker:
    def __init__(self, settings: dict[str, Any]) -> None:
        import numpy
        import openvino
        import openvino_genai

        self.np, self.openvino, self.lib, self.settings = numpy, openvino, openvino_genai, settings
        self.blocks = -(-settings["context"] // BLOCK) + 1
        self.load()
        evicted = settings["max_cache_size"] or 0
        warm = min(evicted + 2 * BLOCK, settings["context"] - 2)
        # some cache types fail only here; afterwards the bytes are known
        self.generate([1] * warm, max_new_tokens=2, ignore_eos=True)

    def load(self) -> None:
        settings, scheduler = self.settings, self.lib.SchedulerConfig()
        scheduler.num_kv_blocks = self.blocks
        # with cached prefixes of earlier prompts, the same question has other log-probabilities the second time
        scheduler.enable_prefix_caching = settings["prefix_caching"]
        if settings["sparse_prefill"]:
            scheduler.use_sparse_attention = True
            scheduler.sparse_attention_config = self.lib.SparseAttentionConfig(
                mode=getattr(self.lib.SparseAttentionMode, settings["sparse_prefill"]),
                num_last_dense_tokens_in_prefill=settings["sparse_dense"],
                num_retained_start_tokens_in_cache=settings["sparse_start"],
                num_retained_recent_tokens_in_cache=settings["sparse_recent"],
                xattention_threshold=settings["sparse_threshold"],
            )
        if settings["max_cache_size"]:
            scheduler.use_cache_eviction = True
            scheduler.cache_eviction_config = self.lib.CacheEvictionConfig(
                start_size=settings["start_size"],
                recent_size=settings["recent_size"],
                max_cache_size=settings["max_cache_size"],
                aggregation_mode=getattr(self.lib.AggregationMode, settings["aggregation"]),
                apply_rotation=settings["rotation"],
                snapkv_window_size=settings["snapkv_window"],
                **self.crush(),
            )
        properties = {"INFERENCE_PRECISION_HINT": settings["compute"], "INFERENCE_NUM_THREADS": settings["threads"]}
        if settings["precision"]:
            properties["KV_CACHE_PRECISION"] = settings["precision"]
        self.pipeline: Any = None  # frees the earlier pipeline's memory
        self.pipeline = self.lib.ContinuousBatchingPipeline(
            settings["model_file"], scheduler, settings["device"], properties
        )
        self.requests = 0

    def crush(self) -> dict[str, Any]:
        """The options of KVCrush, if it is used."""
        if not self.settings["kvcrush"]:
            return {}
        anchor = getattr(self.lib.KVCrushAnchorPointMode, self.settings["kvcrush_anchor"])
        return {"kvcrush_config": self.lib.KVCrushConfig(self.settings["kvcrush"], anchor)}

    def about(self) -> dict[str, Any]:
        reported = self.pipeline.get_metrics().kv_cache_size_in_bytes
        vocabulary = self.pipeline.get_tokenizer().get_vocab()
        return {
            "version": self.openvino.__version__.split("-")[0],
            "genai": self.lib.__version__.split("-")[0],
            "reported_bytes": reported,
            "token_bytes": reported / (self.blocks * BLOCK),
            "block": BLOCK,
            "vocabulary": len(vocabulary),
            "decoded": texts_of(vocabulary),
        }

    def generate(self, ids: list[int], **rules: Any) -> tuple[list[int], list[float]]:
        """Tokens after a prompt and the log-probability of each; with `echo` also of the prompt's tokens."""
        if len(ids) + rules["max_new_tokens"] > self.settings["context"]:
            raise ValueError(
                f"{len(ids)} tokens and {rules['max_new_tokens']} new ones exceed engine.context, "
                f"{self.settings['context']} tokens"
            )
        self.requests += 1
        config = self.lib.GenerationConfig(do_sample=False, repetition_penalty=1.0, logprobs=1, **rules)
        prompt = self.openvino.Tensor(self.np.array([ids], dtype=self.np.int64))
        try:
            handle = self.pipeline.add_request(self.requests, prompt, config)
            while self.pipeline.has_non_finished_requests():
                self.pipeline.step()
        except Exception:
            self.load()  # a failed request would stay among the next requests
            raise
        status = handle.get_status()
        outputs = handle.read_all()
        if status != self.lib.GenerationStatus.FINISHED or not outputs:
            raise ValueError(f"OpenVINO ended the question with the status {status.name}")
        return list(outputs[0].generated_ids), list(outputs[0].generated_log_probs)

    def complete(
        self, ids: list[int], max_new_tokens: int, stops: list[int], at_least_one: bool, top: int
    ) -> dict[str, Any]:
        """Greedy tokens until a stop token, which is left out; and log-probabilities, including the stop token's."""
        rules = {"stop_token_ids": set(stops), "min_new_tokens": int(at_least_one)} if stops else {"ignore_eos": True}
        tokens, logs = self.generate(ids, max_new_tokens=max_new_tokens, **rules)
        end = next((place for place, token in enumerate(tokens) if token in stops), len(tokens))
        pairs = list(zip(tokens[: end + 1], logs[: end + 1], strict=True))
        tops = [{f"token_id:{token}": log} for token, log in pairs] if top else None
        return {"tokens": tokens[:end], "top": tops, "prompt_tokens": len(ids)}

    def follow(self, ids: list[int], tokens: list[int], top: int) -> dict[str, Any]:
        """The likeliest token at the place of each of `tokens` after a prompt, which is read again for each token.

        None under eviction and sparse attention: a prompt that is read again keeps, or reads, other tokens than a
        prompt that is continued.
        """
        if self.settings["max_cache_size"] or self.settings["sparse_prefill"]:
            return {"top": None}
        tops = []
        for place in range(len(tokens)):
            (token,), (log,) = self.generate([*ids, *tokens[:place]], max_new_tokens=1, ignore_eos=True)
            tops.append({f"token_id:{token}": log})
        return {"top": tops}

    def score(self, ids: list[int], tokens: list[int], top: int) -> dict[str, Any]:
        """The log-probability of each of `tokens`, read and echoed in one pass with the prompt."""
        text = [*ids, *tokens]
        echoed, logs = self.generate(text, max_new_tokens=0, echo=True)
        if echoed != text:
            raise ValueError("OpenVINO echoes another prompt than it was sent")
        return {"logprobs": logs[len(ids) :], "top": None, "read": len(echoed)}
