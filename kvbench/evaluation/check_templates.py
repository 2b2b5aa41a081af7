"""What prompts and chat template do to each other, found before the first sample is run."""

from collections.abc import Sequence

from kvbench.benchmarks import Sample
from kvbench.errors import UserError
from kvbench.evaluation.prompts import AnyModel
from kvbench.utils.chat_template import MARK
from kvbench.utils.console import warn
from kvbench.utils.text import count

SWITCH = "enable_thinking"  # what chat templates of models that can think before they answer call it


def check_templates(loaded: AnyModel, name: str, samples: Sequence[Sample], thinking: bool) -> None:
    """Warn where the model's thinking was not chosen or is not what benchmark `name` is for, and where an answer's end
    is no stop token. Raises UserError for prompts that carry the model's chat template already."""
    chats = [sample for sample in samples if loaded.templated(sample.chat)]
    if not chats:
        return
    check_written_once(loaded, chats)
    check_thinking(loaded, name, thinking)
    check_end_of_answer(loaded)


def check_thinking(loaded: AnyModel, name: str, wanted: bool) -> None:
    """A line where the template's switch is not set, or set otherwise than the benchmark wants."""
    if SWITCH not in loaded.template:
        return
    chosen = (loaded.spec.template_args or {}).get(SWITCH)
    how = f"'model.template_args={{{SWITCH}: {str(wanted).lower()}}}'"
    if chosen is None:
        warn(
            f"the chat template of {loaded.spec.name} has a switch for thinking that is not set, so the model may "
            f"think before it answers: {how} is what {name} is for"
        )
    elif bool(chosen) != wanted:
        kind = "begin with a chain of thought" if wanted else "are short and begin at once"
        warn(f"{name} is for answers that {kind}, and {SWITCH} is {str(bool(chosen)).lower()}: {how}")


def check_end_of_answer(loaded: AnyModel) -> None:
    """A line where none of the special tokens that the template writes behind an answer ends one."""
    ends = [token for text in behind_an_answer(loaded) for token in loaded.special_tokens(text)[:1]]
    if ends and not loaded.stop_tokens & {*ends}:
        end = loaded.tokenizer.convert_ids_to_tokens(ends[0])
        warn(
            f"the chat template of {loaded.spec.name} ends an answer with {end!r}, which is no stop token of its "
            f"generation configuration, so answers go on behind it: 'model.stop_tokens=[\"{end}\"]'"
        )


def behind_an_answer(loaded: AnyModel) -> list[str]:
    """What the template writes behind an answer: behind the last message, and before a further one."""
    asked = [("user", "a"), ("assistant", MARK)]
    try:
        texts = [loaded.written(messages, answering=False) for messages in (asked, [*asked, ("user", "a")])]
    except UserError:  # a template for questions alone
        return []
    return [text.partition(MARK)[2] for text in texts]


def check_written_once(loaded: AnyModel, samples: Sequence[Sample]) -> None:
    """Raise UserError where a prompt begins as the template does; a line where prompts contain its special tokens.

    Such prompts were made for this model by another program, as RULER's files are, and would get a second template.
    """
    whole, bos = loaded.written([("user", MARK)]), loaded.tokenizer.bos_token or ""
    bos = bos if whole.count(bos) == 1 else ""  # not where each message begins with it
    head = whole.partition(MARK)[0].removeprefix(bos).strip()
    tokens = [loaded.tokenizer.convert_ids_to_tokens(token) for token in loaded.special_tokens(head)]
    begin = next((token for token in tokens if head.startswith(token)), head)  # a system message may be left out
    again = "model.chat_template=none reads prompts as they are"
    first = next((one for one in samples if begin and one.prompt.removeprefix(bos).lstrip().startswith(begin)), None)
    if first is not None:
        raise UserError(
            f"sample {first.id!r} begins with {begin.splitlines()[0]!r}, as the chat template of {loaded.spec.name} "
            f"does, which would be written twice: {again}"
        )
    inside = [sample for sample in samples if any(token in sample.prompt for token in tokens)]
    if inside:
        token = next(token for token in tokens if token in inside[0].prompt)
        warn(
            f"{count(len(inside), 'prompt')} of {len(samples)} contain {token!r}, which the chat template of "
            f"{loaded.spec.name} writes, too: if they carry the template already, {again}"
        )
