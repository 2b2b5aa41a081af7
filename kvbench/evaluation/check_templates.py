"""Conflicts between prompts and chat template, found before the first sample is run."""

from collections.abc import Sequence

from kvbench.benchmarks import Sample
from kvbench.errors import UserError
from kvbench.evaluation.prompts import AnyModel
from kvbench.utils.chat_template import MARK
from kvbench.utils.console import warn
from kvbench.utils.text import count

SWITCH = "enable_thinking"  # what chat templates of models that can think before they answer call it


def check_templates(loaded: AnyModel, name: str, samples: Sequence[Sample], thinking: bool) -> None:
    """Warn if the model's thinking is not set as benchmark `name` wants it, or if an answer's end is no stop token.

    Raises UserError for prompts that carry the model's chat template already.
    """
    chats = [sample for sample in samples if loaded.templated(sample.chat)]
    if not chats:
        return
    check_written_once(loaded, chats)
    check_thinking(loaded, name, thinking)
    check_end_of_answer(loaded)


def check_thinking(loaded: AnyModel, name: str, thinking: bool) -> None:
    """Warn if the template's switch is not set, or not as the benchmark wants."""
    if SWITCH not in loaded.template:
        return
    chosen = (loaded.spec.template_args or {}).get(SWITCH)
    how = f"'model.template_args={{{SWITCH}: {str(thinking).lower()}}}'"
    if chosen is None:
        warn(
            f"the chat template of {loaded.spec.name} has a switch for thinking that is not set, so the model may "
            f"think before it answers: {how} is what {name} is for"
        )
    elif bool(chosen) != thinking:
        kind = "begin with a chain of thought" if thinking else "are short and begin at once"
        warn(f"{name} is for answers that {kind}, and {SWITCH} is {str(bool(chosen)).lower()}: {how}")


def check_end_of_answer(loaded: AnyModel) -> None:
    """Warn if the special token that the template writes after an answer is no stop token."""
    ends = [token for text in texts_after_answer(loaded) for token in loaded.special_tokens(text)[:1]]
    if ends and not loaded.stop_tokens & {*ends}:
        end = loaded.tokenizer.convert_ids_to_tokens(ends[0])
        warn(
            f"the chat template of {loaded.spec.name} ends an answer with {end!r}, which is no stop token of its "
            f"generation configuration, so answers go on after it: 'model.stop_tokens=[\"{end}\"]'"
        )


def texts_after_answer(loaded: AnyModel) -> list[str]:
    """The template's text after an answer: at the end of a conversation, and before another message."""
    turn = [("user", "a"), ("assistant", MARK)]
    try:
        texts = [loaded.written(messages, answering=False) for messages in (turn, [*turn, ("user", "a")])]
    except UserError:  # the template takes questions only
        return []
    return [text.partition(MARK)[2] for text in texts]


def check_written_once(loaded: AnyModel, samples: Sequence[Sample]) -> None:
    """Raise UserError if a prompt begins as the template does; warn if prompts contain its special tokens.

    Such prompts were made for this model by another program, as RULER's files are, and would get a second template.
    """
    rendered, bos = loaded.written([("user", MARK)]), loaded.tokenizer.bos_token or ""
    bos = bos if rendered.count(bos) == 1 else ""  # not where each message begins with it
    head = rendered.partition(MARK)[0].removeprefix(bos).strip()
    tokens = [loaded.tokenizer.convert_ids_to_tokens(token) for token in loaded.special_tokens(head)]
    begin = next((token for token in tokens if head.startswith(token)), head)  # a system message may be left out
    hint = "model.chat_template=none reads prompts as they are"
    first = next(
        (sample for sample in samples if begin and sample.prompt.removeprefix(bos).lstrip().startswith(begin)), None
    )
    if first is not None:
        raise UserError(
            f"sample {first.id!r} begins with {begin.splitlines()[0]!r}, as the chat template of {loaded.spec.name} "
            f"does, which would be written twice: {hint}"
        )
    inside = [sample for sample in samples if any(token in sample.prompt for token in tokens)]
    if inside:
        token = next(token for token in tokens if token in inside[0].prompt)
        warn(
            f"{count(len(inside), 'prompt')} of {len(samples)} contain {token!r}, which the chat template of "
            f"{loaded.spec.name} writes, too: if they carry the template already, {hint}"
        )
