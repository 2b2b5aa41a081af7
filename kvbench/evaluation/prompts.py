"""Splits a prompt into a compressed part and one that is read only afterwards: question=visible|hidden, first_token."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from kvbench.benchmarks import Sample
from kvbench.errors import UserError
from kvbench.evaluation.encoded import before_question, context, encoded, messages_before
from kvbench.evaluation.spans import Span, spans_of
from kvbench.models import LoadedModel, TextModel
from kvbench.utils.chat_template import mark_beside

AnyModel = LoadedModel | TextModel  # with its weights, or without where an engine has them


@dataclass(frozen=True)
class Prompt:
    """A sample as token ids: `context` is prefilled and compressed, `question` is read through the compressed caches.

    With question=visible all tokens are context, or all but the last with first_token=compressed. With question=hidden
    the same tokens are split before the first one that contains a character of the question (a question may also be
    tokenised separately). The rest of the chat template, the prefix, and later turns with their expected answers belong
    to the question.
    """

    sample: Sample
    context: Tensor  # [n]
    question: Tensor  # [q], empty where all tokens are context
    turns: tuple[Tensor, ...] = ()  # [t] each: the texts after the model's own answers, if these stay in the caches
    spans: Mapping[str, Span] = field(default_factory=dict)  # places of the sample's marked texts among all tokens
    text: str = ""  # as it was tokenised, without later turns

    @property
    def new_tokens(self) -> int:
        """The most tokens that are read after the context: the question's, later turns', and all of the answers'."""
        return len(self.question) + sum(map(len, self.turns)) + answer_tokens(self.sample)


def tokenise(loaded: AnyModel, sample: Sample, question: str, first_token: str = "full") -> Prompt:
    """The sample's tokens under a protocol: question visible or hidden, first_token full or compressed.

    The prefill's logits choose the first generated token after full attention to the prompt. With
    first_token=compressed they do not: the prompt's last token is read through the compressed cache.

    Raises UserError if the tokens do not fit the model, if no token is left to compress, or if the question cannot be
    separated from the context.
    """
    text = loaded.render(sample.prompt, sample.chat, sample.prefix, sample.history)
    if question == "visible":
        tokens_of = encoded(loaded, sample, text)
        split = len(tokens_of.ids) - (first_token == "compressed")
    else:
        before = before_question(loaded, sample, text)
        if not loaded.tokenizer.is_fast:
            raise UserError(f"question=hidden needs a fast tokenizer, which {loaded.spec.name} does not have")
        tokens_of = encoded(loaded, sample, text, offsets=True)
        split = tokens_of.apart or sum(end <= before for _, end in tokens_of.offsets)
    if not split:
        raise UserError(_nothing_left(sample, len(tokens_of.ids), first_token))
    ids, later = torch.tensor(tokens_of.ids), later_turns(loaded, sample)
    tokens, answers = len(ids) + sum(map(len, later)), answer_tokens(sample)
    assert loaded.spec.max_length is not None, "a loaded model's limit is known"
    room = loaded.spec.max_length - answers
    if tokens > room:
        raise UserError(
            f"sample {sample.id!r} has {tokens} tokens; {loaded.spec.name} takes at most {room} "
            f"with {'answers' if sample.own_answers and later else 'an answer'} of {answers}"
        )
    if isinstance(loaded, LoadedModel):
        _check_known(loaded, sample, [*tokens_of.ids, *(token for turn in later for token in turn.tolist())])
    spans = spans_of(loaded, sample, text)
    if sample.own_answers:
        prompt = Prompt(sample, ids[:split], ids[split:], tuple(later), spans, text)
    else:
        prompt = Prompt(sample, ids[:split], torch.cat([ids[split:], *later]), spans=spans, text=text)
    _check_growth(loaded, prompt)
    return prompt


def _check_known(loaded: LoadedModel, sample: Sample, ids: Sequence[int]) -> None:
    """Refuse a token beyond a model's embeddings. A tokenizer may have such tokens, as Gemma-3's has one for images."""
    known = loaded.model.get_input_embeddings().weight.shape[0]
    if (highest := max(ids)) >= known:
        raise UserError(
            f"sample {sample.id!r} has the token {highest} ({loaded.tokenizer.convert_ids_to_tokens(highest)!r}), and "
            f"{loaded.spec.name} has embeddings for {known}: its tokenizer belongs to another model, or added tokens "
            "lack weights"
        )


def later_turns(loaded: AnyModel, sample: Sample) -> list[Tensor]:
    """The tokens of each later turn, [t] each: the answer before it, unless it is the model's own, and its message.

    With a chat template they are its text after an answer, including the answer's end and the header of the next.
    Without one, an empty line separates answer and message (SCBench's templates).
    """
    turns = []
    for turn in sample.turns:
        after = f"\n\n{turn.question}"
        if loaded.templated(sample.chat):
            mark = mark_beside(sample.prompt, *messages_before(sample))
            history = [*sample.history, ("user", sample.prompt), ("assistant", mark)]
            _, written, after = loaded.render(turn.question, sample.chat, history=history).partition(mark)
            if not written:
                raise UserError(f"the chat template of {loaded.spec.name} leaves out the answers of earlier turns")
        turns.append(torch.tensor(loaded.plain_tokens(("" if sample.own_answers else turn.answer) + after)))
    return turns


def answer_tokens(sample: Sample) -> int:
    """The most tokens that are generated for the sample: for its answer, and for the model's own earlier ones."""
    return sample.max_new_tokens + sample.own_answers * sum(turn.max_new_tokens for turn in sample.turns)


def _nothing_left(sample: Sample, tokens: int, first_token: str) -> str:
    """Why a sample of `tokens` tokens, all of which are read after compression, has no context."""
    if tokens and first_token == "compressed":
        return (
            f"sample {sample.id!r} has a prompt of one token, which first_token=compressed reads after compression: "
            "use a longer prompt or first_token=full"
        )
    return f"sample {sample.id!r} has no token before its question or answer: there is nothing to compress"


def _check_growth(loaded: AnyModel, prompt: Prompt) -> None:
    """Refuse a text whose cached keys were rotated with other frequencies than later queries (dynamic NTK, LongRoPE).

    `model.generate` recomputes the whole cache when LongRoPE's frequencies change, which a compressed cache cannot do;
    dynamic frequencies change with every token, and stay for the next setting.
    """
    growth, context = loaded.growth, len(prompt.context)
    end = context + prompt.new_tokens - 1  # the last new token is never read
    if growth and growth.splits(context, end):
        raise UserError(
            f"sample {prompt.sample.id!r} goes from {context} to {end} tokens after its context was prefilled, and "
            f"{loaded.spec.name} uses other RoPE frequencies beyond {growth.length} (rope_type={growth.kind}): use "
            f"shorter {'or longer ' * growth.settles}prompts"
        )


def together(samples: Sequence[Sample], question: str) -> list[list[Sample]]:
    """Groups of samples that may share one compressed context, in order of first appearance."""
    groups: dict[object, list[Sample]] = {}
    for sample in samples:
        key: object
        if question == "hidden":
            key = sample.chat, sample.history, context(sample)
        else:
            key = ("context", sample.context_id) if sample.context_id else sample.id
        groups.setdefault(key, []).append(sample)
    return list(groups.values())
