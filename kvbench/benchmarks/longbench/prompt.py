"""From a row to a prompt as LongBench's pred.py makes it, and which end of the prompt is the question."""

from collections.abc import Mapping

from transformers import PreTrainedTokenizerBase


def build(
    template: str, row: Mapping[str, object], max_length: int, tokenizer: PreTrainedTokenizerBase
) -> tuple[str, str]:
    """The prompt, of at most about `max_length` tokens, and its question: what follows the context.

    As in the official code the tokens are counted before any chat template, with the special tokens that the
    tokenizer adds by itself.
    """
    fields = {"context": row["context"], "input": row["input"]}
    prompt = template.format(**fields)
    tail = template.partition("{context}")[2].format(**fields)
    ids = tokenizer(prompt, truncation=False)["input_ids"]
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
