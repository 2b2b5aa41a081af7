"""One task at one length: rows in the form of the official generator's validation.jsonl."""

from collections.abc import Iterator
from typing import Any

from kvbench.benchmarks.ruler.cwe import CommonWordsMaker
from kvbench.benchmarks.ruler.fitting import Count, DoesNotFit, fitted
from kvbench.benchmarks.ruler.fwe import coded
from kvbench.benchmarks.ruler.inputs import Inputs
from kvbench.benchmarks.ruler.maker import Draft, Maker
from kvbench.benchmarks.ruler.niah import NeedleMaker
from kvbench.benchmarks.ruler.qa import AnswerMaker
from kvbench.benchmarks.ruler.tasks import TASKS
from kvbench.benchmarks.ruler.vt import TrackingMaker
from kvbench.errors import UserError

VERSION = 1  # increased whenever the same inputs give other samples


def generate(
    name: str, length: int, count: int, inputs: Inputs, tokens: Count, chat_tokens: int = 0
) -> Iterator[dict[str, Any]]:
    """The first `count` samples of a task, each of at most `length` tokens with its answer.

    `tokens` counts a text's tokens without special ones; `chat_tokens` of the length are left for a chat template.
    With the same texts, words, questions and tokenizer the rows equal the rows of the official generator at
    `--random_seed inputs.seed` and `--model_template_token chat_tokens`, byte for byte. Raises UserError.
    """
    task = TASKS[name]

    def fits(other_length: int) -> bool:
        try:
            return next(_drafts(name, other_length, 1, inputs, tokens, chat_tokens), None) is not None
        except DoesNotFit:
            return False

    try:
        for index, (draft, total) in enumerate(_drafts(name, length, count, inputs, tokens, chat_tokens)):
            row: dict[str, Any] = {
                "index": index,
                "input": draft.input,
                "outputs": draft.outputs,
                "length": total,
                "length_w_model_temp": total + chat_tokens,
                "answer_prefix": draft.prefix,
            }
            if task.kind == "niah":
                # the official index of a needle's sample is the position of its answer
                row["index"] = draft.input.find(draft.outputs[0])
                row["token_position_answer"] = tokens(draft.input[: row["index"]])
            yield row
    except DoesNotFit:
        room = f"{length} tokens, of which the chat template takes {chat_tokens}" if chat_tokens else f"{length} tokens"
        longer = next(filter(fits, range(length // 256 * 256 + 256, 4 * length + 1025, 256)), None)
        advice = "other tasks would do" if longer is None else f"{longer} tokens would do"
        raise UserError(f"{name} does not fit into {room}: {advice}") from None


def _drafts(
    name: str, length: int, count: int, inputs: Inputs, tokens: Count, chat_tokens: int
) -> Iterator[tuple[Draft, int]]:
    task, texts, seed = TASKS[name], inputs.texts, inputs.seed
    room = length - chat_tokens
    if task.kind == "fwe":
        return coded(texts, count, room, tokens, task.max_new_tokens, seed)
    maker: Maker
    if task.kind == "niah":
        maker = NeedleMaker(task, texts, inputs.essays if task.source == "essay" else None, length, seed)
    elif task.kind == "vt":
        maker = TrackingMaker(texts, length, chat_tokens, seed, tokens)
    elif task.kind == "cwe":
        maker = CommonWordsMaker(texts, lambda: inputs.more_words, length, seed)
    else:
        maker = AnswerMaker(texts, inputs.questions(task.source, count), seed)
    return fitted(maker, count, room, tokens, task.max_new_tokens)
