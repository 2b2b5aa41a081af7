"""A tokenizer with a limit on the text it reads, which bounds the samples of a stranger's benchmark."""

from typing import Any

from transformers import PreTrainedTokenizerBase

from kvbench.errors import UserError


class CountedTokenizer:
    """`tokenizer` for at most so many characters and tokens together. Raises UserError beyond."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, characters: int):
        self._tokenizer, self._most, self._left = tokenizer, characters, characters

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tokenizer, name)

    def __call__(self, text: Any, **options: Any) -> Any:
        self._spend(text)
        return self._tokenizer(text, **options)

    def encode(self, text: str, **options: Any) -> Any:
        self._spend(text)
        return self._tokenizer.encode(text, **options)

    def decode(self, tokens: Any, **options: Any) -> Any:
        self._spend(tokens)
        return self._tokenizer.decode(tokens, **options)

    def _spend(self, read: Any) -> None:
        self._left -= sum(map(len, read)) if isinstance(read, list) and read and isinstance(read[0], str) else len(read)
        if self._left < 0:
            raise UserError(f"the benchmark's samples take more than {self._most:,} characters to make")
