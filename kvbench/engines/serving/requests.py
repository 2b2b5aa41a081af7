"""The requests of a load: prompts of the benchmark in benchmark.of, as rows that GuideLLM reads."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from kvbench.benchmarks import Sample
from kvbench.benchmarks.serve import Serve
from kvbench.engines.questions import question
from kvbench.models import TextModel


def rows(
    benchmark: Serve, reader: TextModel, prompts: Sequence[Sample], chats: bool, first: int, mark: str
) -> list[dict[str, Any]]:
    """A row for each request of a load: `prompt`, a text or messages, its `tokens` by kvbench's count, and the
    `new_tokens` of its answer.

    first  number of requests before this load: its prompts continue from there.
    mark   text before the number of a fresh prompt, different in each run.
    """
    return [
        _row(benchmark, reader, prompts[number % len(prompts)], chats, f"[{mark}-{number}] ")
        for number in range(first, first + benchmark.warmup + benchmark.requests)
    ]


def _row(benchmark: Serve, reader: TextModel, sample: Sample, chats: bool, number: str) -> dict[str, Any]:
    fresh = replace(sample, prompt=number + sample.prompt) if benchmark.fresh else sample
    asked = question(reader, fresh)
    prompt = [message._asdict() for message in asked.messages] if chats else asked.text
    return {"prompt": prompt, "tokens": len(asked.ids), "new_tokens": benchmark.new_tokens or sample.max_new_tokens}
