"""The type of a tokenizer, without the second that importing transformers takes."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase as Tokenizer
else:
    Tokenizer = object

__all__ = ["Tokenizer"]
