"""`kvbench calibrate FILE`: a score for each head of a model, from a few prompts, for methods that need one."""

import json
from collections.abc import Sequence
from pathlib import Path

from kvbench.configuration import Configuration, configured
from kvbench.errors import UserError
from kvbench.utils.arguments import Parser, word
from kvbench.utils.console import print_line
from kvbench.utils.files import write_atomically
from kvbench.utils.release import __version__
from kvbench.utils.targets import build
from kvbench.utils.text import count

MORE = """Retrieval scores are read by method=headkv method.headkv.heads.scores_file=FILE and by
method=duo_attention method.duo_attention.gates_file=FILE; they are no substitute for DuoAttention's trained gates.
KVzip's are read by method=kvzip_head method.kvzip_head.heads.scores_file=FILE."""
NEEDLES = "benchmark=niah"
PROMPTS = [NEEDLES, "benchmark.lengths=[1000]", "benchmark.depths=[10,30,50,70,90]"]
ABOUT = {
    "retrieval": "retrieval scores of query heads (HeadKV, arXiv 2410.19258, section 3.1); not DuoAttention's trained "
    "gates",
    "kvzip": "most attention that a token of a KV head gets while the context is repeated (KVzip, arXiv 2505.23416)",
}
OVER = {"retrieval": "query_heads", "kvzip": "kv_heads"}


def main(arguments: Sequence[str]) -> None:
    parser = Parser(
        "calibrate", "Write FILE with a score for each head of the model. An existing FILE is never overwritten.", MORE
    )
    parser.add_argument("file", metavar="FILE", type=word, help="a JSON file to write")
    parser.overrides(
        "model=NAME as for kvbench, and keys of benchmark=niah, which makes the prompts: by default five depths of "
        "1,000 tokens"
    )
    parser.setting(
        "scores=retrieval",
        "the default: for each query head, the attention that it gives to a needle while the model recites it "
        "(HeadKV's definition); scores=kvzip: for each KV head, the most attention that any of its tokens gets while "
        "the model repeats a context (KVzip's definition)",
        scores_of,
        "retrieval",
    )
    options = parser.parse(arguments)
    file = Path(options.file)
    if file.exists():
        raise UserError(f"{file} exists: a calibration is part of a run's identity, so it is never overwritten")
    if other := next((text for text in options.overrides if text.startswith("benchmark=") and text != NEEDLES), None):
        raise UserError(
            f"{other}: {NEEDLES} makes the prompts, whose needles the scores are of; it takes its keys alone"
        )
    calibrate(file, options.scores, configured([*PROMPTS, *options.overrides]))


def scores_of(text: str) -> str:
    if text not in ABOUT:
        raise UserError(f"scores={text}: there are {' and '.join(ABOUT)}")
    return text


def calibrate(file: Path, chosen: str, cfg: Configuration) -> None:
    # after the checks: this imports torch
    from kvbench.benchmarks import Benchmark
    from kvbench.evaluation.reconstruction_scores import reconstruction_scores
    from kvbench.evaluation.retrieval_scores import retrieval_scores
    from kvbench.methods.heads.head_scores import KIND
    from kvbench.models import load

    benchmark, spec = build(cfg.benchmark, "benchmark", Benchmark), cfg.model
    loaded = load(spec)
    samples = benchmark.samples(loaded.tokenizer)
    if chosen == "kvzip":
        scores, used = reconstruction_scores(loaded, samples), [sample.id for sample in samples]
    else:
        scores, used = retrieval_scores(loaded, benchmark, samples)
    contents = {
        "kind": KIND,
        "about": ABOUT[chosen],
        "model": spec.name,
        "model_config": cfg.plain["model"],
        "over": OVER[chosen],
        "benchmark": cfg.benchmark,
        "samples": used,
        "samples_not_answered": [sample.id for sample in samples if sample.id not in used],
        "kvbench": __version__,
        "scores": scores,
    }
    write_atomically(file, json.dumps(contents, indent=1) + "\n")
    verb = "read again" if chosen == "kvzip" else "answered"
    print_line(f"{count(len(used), 'prompt')} of {len(samples)} {verb}; scores of {len(scores)} layers in {file}")
