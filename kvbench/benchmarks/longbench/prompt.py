"""Prompts from rows, as in LongBench's pred.py, and the part at a prompt's end that is the question."""

from collections.abc import Iterator, Mapping, Sequence

from kvbench.benchmarks.truncation import PromptText, question_in
from kvbench.utils.tokenizer import Tokenizer

# Prompts per tokenizer call; a fast tokenizer uses all cores for one call.
TOGETHER = 64


def build(
    template: str, rows: Sequence[Mapping[str, object]], max_length: int, tokenizer: Tokenizer
) -> Iterator[PromptText]:
    """Each row's prompt, of at most about `max_length` tokens, and its question: what follows the context.

    As in the official code the tokens are counted before any chat template, with the special tokens that the
    tokenizer adds by itself.
    """
    ending = template.partition("{context}")[2]
    for start in range(0, len(rows), TOGETHER):
        fields = [{"context": row["context"], "input": row["input"]} for row in rows[start : start + TOGETHER]]
        prompts = [template.format(**each) for each in fields]
        tokens = tokenizer(prompts, truncation=False)["input_ids"]
        for each, prompt, ids in zip(fields, prompts, tokens, strict=True):
            yield _cut(prompt, ending.format(**each), ids, max_length, tokenizer)


def _cut(prompt: str, tail: str, ids: list[int], max_length: int, tokenizer: Tokenizer) -> PromptText:
    """The prompt of these ids, with its middle removed where it is too long, and the question in it that `tail` is."""
    if len(ids) <= max_length:
        return PromptText(prompt, tail)
    half = max_length // 2
    start, end = (tokenizer.decode(part, skip_special_tokens=True) for part in (ids[:half], ids[-half:]))
    before = prompt[: -len(tail)]
    if start.startswith(before):  # the cut is inside the question: all of the context is in the first half
        return PromptText(start + end, (start + end)[len(before) :])
    return PromptText(start + end, question_in(end, tail, tokenizer))
