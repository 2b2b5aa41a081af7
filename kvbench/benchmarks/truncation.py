"""Prompts that lose their middle, and the question that is left of their end."""

from collections.abc import Iterator, Sequence

from transformers import PreTrainedTokenizerBase

# Prompts per tokenizer call; a fast tokenizer uses all cores for one call.
TOGETHER = 16


def without_middle(
    prompts: Sequence[tuple[str, str]], max_length: int, last: int, tokenizer: PreTrainedTokenizerBase
) -> Iterator[tuple[str, str]]:
    """For each prompt and its end, the question: a prompt of at most about `max_length` tokens, and its question.

    A longer prompt is the text of its first max_length // 2 and its `last` tokens, decoded together without special
    tokens, as LongBench v2 and InfiniteBench have it; the tokens are those of `tokenizer.encode`.
    """
    for start in range(0, len(prompts), TOGETHER):
        several = prompts[start : start + TOGETHER]
        tokens = tokenizer([prompt for prompt, _ in several], truncation=False)["input_ids"]
        for (prompt, question), ids in zip(several, tokens, strict=True):
            if len(ids) <= max_length:
                yield prompt, question
                continue
            text = tokenizer.decode(ids[: max_length // 2] + ids[-last:], skip_special_tokens=True)
            left = question_in(tokenizer.decode(ids[-last:], skip_special_tokens=True), question, tokenizer)
            yield text, left if text.endswith(left) else text[-len(left) :]


def question_in(end: str, tail: str, tokenizer: PreTrainedTokenizerBase) -> str:
    """The part of a cut prompt's second half that stands for `tail`.

    This is `tail` itself, unless decoding changed it (special tokens in it are dropped, some tokenizers change
    blanks): then `tail` encoded and decoded, or else as many characters of the end as `tail` has. If `tail` is
    longer than the second half, all of that half is question.
    """
    decoded = tokenizer.decode(tokenizer(tail, add_special_tokens=False)["input_ids"], skip_special_tokens=True)
    for candidate in (tail, decoded):
        if end.endswith(candidate):
            return candidate
    return end[-len(tail) :]
