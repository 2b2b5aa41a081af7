"""The place of the context in a prompt's tokens, and how to encode a request about it, for second passes."""

from kvbench.errors import UserError
from kvbench.evaluation.encoded import encoded, messages_before
from kvbench.evaluation.prompts import Prompt
from kvbench.models import LoadedModel
from kvbench.prefill import ContextFrame
from kvbench.utils.chat_template import mark_beside

NO_TEMPLATE = "\n"  # between a request and its answer without a chat template


def context_frame(loaded: LoadedModel, prompt: Prompt) -> ContextFrame:
    """The frame of a prompt's context: its tokens without the chat template around them and the start of the answer.

    A visible question belongs to the context, a hidden one does not. Raises UserError for a tokenizer that does not say
    the characters of each token.
    """
    sample = prompt.sample
    if not loaded.tokenizer.is_fast:
        raise UserError(
            f"a second pass over the context needs a fast tokenizer, which {loaded.spec.name} does not have"
        )
    mark = mark_beside(sample.prompt, *messages_before(sample))
    (role, _), *later = [*sample.history, ("user", sample.prompt)]
    *before, (_, last) = [(role, mark), *later]  # the first message is at the context's begin
    head = loaded.render(last, sample.chat, history=before).partition(mark)[0]
    tail = loaded.render(mark, sample.chat, history=sample.history).partition(mark)[2]
    text = loaded.render(sample.prompt, sample.chat, sample.prefix, sample.history)
    head = head or loaded.own_beginning(text, sample.chat)
    offsets = encoded(loaded, sample, text, offsets=True).offsets
    after = len(text) - len(tail) - len(sample.prefix)
    prefix = sum(end <= len(head) for _, end in offsets)
    end = sum(start < after for start, _ in offsets)
    suffix = loaded.plain_tokens(tail or NO_TEMPLATE)
    return ContextFrame(prefix, min(end, len(prompt.context)), tuple(suffix), loaded.plain_tokens)
