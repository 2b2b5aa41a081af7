"""From rows to prompts as LongBench's pred.py makes them, and which end of a prompt is the question."""

from collections.abc import Iterator, Mapping, Sequence

from transformers import PreTrainedTokenizerBase

# Prompts that are tokenised together, which a fast tokenizer does on all cores.
TOGETHER = 64


def build(
    template: str, rows: Sequence[Mapping[str, object]], max_length: int, tokenizer: PreTrainedTokenizerBase
) -> Iterator[tuple[str, str]]:
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


def _cut(
    prompt: str, tail: str, ids: list[int], max_length: int, tokenizer: PreTrainedTokenizerBase
) -> tuple[str, str]:
    """A prompt of these ids without its middle where it is too long, and the question that `tail` has become."""
    if len(ids) <= max_length:
        return prompt, tail
    half = max_length // 2
    start, end = (tokenizer.decode(part, skip_special_tokens=True) for part in (ids[:half], ids[-half:]))
    before = prompt[: -len(tail)]
    if start.startswith(before):  # all of the context is in the first half: the cut went through the question
        return start + end, (start + end)[len(before) :]
    return start + end, _question(end, tail, tokenizer)


def _question(end: str, tail: str, tokenizer: PreTrainedTokenizerBase) -> str:
    """The part of a cut prompt's second half that stands for `tail`.

    It is the tail itself, unless decoding changed it (special tokens written in it are dropped, some tokenizers
    mend blanks): then the tail as the tokenizer gives it back, or else as many characters of the end. A tail
    longer than the half fills it: all of the second half is question.
    """
    decoded = tokenizer.decode(tokenizer(tail, add_special_tokens=False)["input_ids"], skip_special_tokens=True)
    for candidate in (tail, decoded):
        if end.endswith(candidate):
            return candidate
    return end[-len(tail) :]
