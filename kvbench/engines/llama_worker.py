"""llama.cpp in a separate process, for worker_loop.py. It imports only the standard library, numpy and llama_cpp."""

import ctypes
import os
import re
from typing import Any

ERRORS = re.compile(r"error|fail|requires|not supported|unsupported|invalid", re.IGNORECASE)
BUFFER = re.compile(r"KV buffer size *= *([\d.]+) MiB")
WINDOWS = re.compile(r"creating +SWA KV cache")  # a cache of the layers with a sliding window alone


class Log:
    """The log of llama.cpp, which is not shown on a terminal."""

    def __init__(self, llama_cpp: Any) -> None:
        self.text = ""

        def add(level: int, text: bytes, user_data: Any) -> None:
            self.text += text.decode("utf-8", "replace")

        self.callback = llama_cpp.llama_log_callback(add)  # referenced, because C calls it
        llama_cpp.llama_log_set(self.callback, ctypes.c_void_p(0))

    def buffer_bytes(self) -> int | None:
        """Bytes of the KV buffers that llama.cpp reports."""
        return round(sum(map(float, BUFFER.findall(self.text))) * 2**20) or None

    def windows(self) -> bool:
        """Whether llama.cpp has another cache for layers with a sliding window."""
        return bool(WINDOWS.search(self.text))

    def errors(self) -> str:
        lines = [line.strip() for line in self.text.splitlines() if ERRORS.search(line)]
        return "; ".join(lines[-2:])


def plain_buffers(llama_cpp: Any) -> None:
    """Load weights in the layout of the file.

    Weights repacked for a CPU's instructions, such as AMX, round differently on each machine, and 0.3.36 crashes with
    them on some machines.
    """
    bindings = llama_cpp.llama_cpp  # the module in which `Llama` looks the function up
    default = bindings.llama_model_default_params

    def params() -> Any:
        values = default()
        values.use_extra_bufts = False
        return values

    bindings.llama_model_default_params = params


# Names of sizes in a model's configuration -> keys of a GGUF file.
SHAPE = {
    "num_hidden_layers": "block_count",
    "num_attention_heads": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv",
    "hidden_size": "embedding_length",
}


def shape_of(metadata: dict[str, str]) -> dict[str, int]:
    """Sizes of the model in the file, without sizes that differ from layer to layer."""
    kind = metadata.get("general.architecture", "")
    sizes = {name: metadata.get(f"{kind}.{key}", "") for name, key in SHAPE.items()}
    return {name: int(value) for name, value in sizes.items() if value.isdecimal()}


def in_short(error: Exception) -> str:
    return str(error)


class Worker:
    def __init__(self, settings: dict[str, Any]) -> None:
        import llama_cpp
        import numpy

        # llama.cpp reads it when it makes the cache; the setting decides, not this process's environment
        os.environ["LLAMA_ATTN_ROT_DISABLE"] = "0" if settings["rotation"] else "1"
        self.np, self.lib, self.log = numpy, llama_cpp, Log(llama_cpp)
        plain_buffers(llama_cpp)
        types = {name: getattr(llama_cpp, f"GGML_TYPE_{settings[name].upper()}", None) for name in ("k", "v")}
        for name, value in types.items():
            if value is None:
                raise ValueError(f"llama.cpp {llama_cpp.__version__} has no type {settings[name]!r}")
        try:
            self.model = llama_cpp.Llama(
                settings["model_file"],
                n_ctx=settings["context"],
                n_batch=512,
                n_threads=settings["threads"],
                n_threads_batch=settings["threads"],
                n_gpu_layers=settings["gpu_layers"],
                flash_attn=settings["flash_attention"],
                swa_full=settings["swa_full"],
                type_k=types["k"],
                type_v=types["v"],
                verbose=True,
            )
        except Exception as error:
            raise ValueError(self.log.errors() or str(error)) from error

    def about(self) -> dict[str, Any]:
        return {
            "version": self.lib.__version__,
            "reported_bytes": self.log.buffer_bytes(),
            "windows": self.log.windows(),
            "vocabulary": self.model.n_vocab(),
            "shape": shape_of(self.model.metadata),
            "tokens": self.texts(),
        }

    def texts(self) -> list[str]:
        """The tokens in the file's spelling, in order of their ids."""
        vocabulary = self.lib.llama_model_get_vocab(self.model.model)
        texts = (self.lib.llama_vocab_get_text(vocabulary, token) for token in range(self.model.n_vocab()))
        return [text.decode("utf-8", "replace") for text in texts]

    def logits(self, tokens: list[int]) -> Any:
        """Read tokens after the earlier ones; the logits of the next token, in float64."""
        self.model.eval(tokens)
        pointer = self.lib.llama_get_logits_ith(self.model.ctx, -1)
        return self.np.ctypeslib.as_array(pointer, shape=(self.model.n_vocab(),)).astype("float64")

    def log_probabilities(self, logits: Any) -> Any:
        shifted = logits - logits.max()
        return shifted - self.np.log(self.np.exp(shifted).sum())

    def top(self, logits: Any, count: int) -> dict[str, float]:
        if not count:
            return {}
        logs = self.log_probabilities(logits)
        likeliest = self.np.argsort(-logs, kind="stable")[:count]
        return {f"token_id:{token}": float(logs[token]) for token in likeliest}

    def complete(
        self, ids: list[int], max_new_tokens: int, stops: list[int], at_least_one: bool, top: int
    ) -> dict[str, Any]:
        """Greedy tokens until a stop token, which is left out; and the likeliest tokens at each place, including the
        stop token's."""
        self.model.reset()
        tokens: list[int] = []
        logits, tops = self.logits(ids), []
        while True:
            tops.append(self.top(logits, top))
            if at_least_one and not tokens:
                logits[stops] = -self.np.inf
            if not self.np.isfinite(logits.max()):
                raise ValueError(f"the logits of generated token {len(tokens)} are NaN or infinite")
            token = int(logits.argmax())
            if token in stops:
                break
            tokens.append(token)
            if len(tokens) == max_new_tokens:
                break
            logits = self.logits([token])
        return {"tokens": tokens, "top": tops if top else None, "prompt_tokens": len(ids)}

    def follow(self, ids: list[int], tokens: list[int], top: int) -> dict[str, Any]:
        """The likeliest tokens at the place of each of `tokens` after a prompt."""
        return {"top": self.score(ids, tokens, top)["top"]}

    def score(self, ids: list[int], tokens: list[int], top: int) -> dict[str, Any]:
        """The log-probability of each of `tokens` after a prompt, and the likeliest tokens at its place.

        Tokens are read one by one, like generated tokens: each attends to the cache of the earlier tokens.
        """
        self.model.reset()
        logs, tops, unread = [], [], ids
        for token in tokens:
            logits = self.logits(unread)
            logs.append(float(self.log_probabilities(logits)[token]))
            tops.append(self.top(logits, top))
            unread = [token]
        read = self.model.n_tokens + 1  # the last token is scored without being read
        return {"logprobs": logs, "top": tops if top else None, "read": read}
