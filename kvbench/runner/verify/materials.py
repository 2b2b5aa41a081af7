"""A run's tokenizer and samples, as far as this machine has or can make them."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

from huggingface_hub import constants, snapshot_download
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from kvbench.benchmarks import Benchmark, Sample
from kvbench.benchmarks.base import at_most, data_hash
from kvbench.metrics.answers import has_name
from kvbench.models.embedded import PACKAGES, embedded_folder
from kvbench.records.recorded_configuration import recorded
from kvbench.runner.verify import limits
from kvbench.runner.verify.counted_tokenizer import CountedTokenizer
from kvbench.runner.verify.known_classes import known
from kvbench.runner.verify.places import Places, check_functions, leaves, placed
from kvbench.runner.verify.prompts import Prompts
from kvbench.runner.verify.reach import within_reach
from kvbench.utils.chat_template import as_read
from kvbench.utils.hashing import file_hash
from kvbench.utils.places import is_place
from kvbench.utils.plugins import versions_of
from kvbench.utils.release import __version__
from kvbench.utils.revisions import checked_revision
from kvbench.utils.targets import TARGET, build


@dataclass(frozen=True)
class Materials:
    """Each is None where this machine lacks it; `missing` says why."""

    tokenizer: PreTrainedTokenizerBase | None
    samples: list[Sample] | None
    missing: tuple[str, ...]
    prompts: Prompts | None = None  # the lengths of the samples' prompts
    benchmark: Benchmark | None = None  # with its data
    other_data: bool = False  # this version makes other samples of the same configuration, which reads no files


def materials(manifest: Mapping[str, Any], places: Places) -> Materials:
    """The tokenizer and samples of a run, without downloads; made once for folders of one model and benchmark."""
    names = ("kvbench", "plugins", "model", "benchmark", "data_sha256")
    config = manifest.get("config") or {}
    relevant = {name: manifest.get(name) for name in names}
    relevant["config"] = {name: config.get(name) for name in ("model", "benchmark")}
    return _materials(json.dumps([relevant, dict(places)], sort_keys=True))


@lru_cache(4)  # samples of long texts take some 100 MB
def _materials(arguments: str) -> Materials:
    manifest, places = json.loads(arguments)
    missing, other = [], False
    tokenizer = samples = prompts = benchmark = None
    with offline():
        with suppress(Exception):  # `samples_of` says why there is none
            benchmark = benchmark_of(manifest, places)
        try:
            tokenizer = tokenizer_of(manifest, places)
            samples = samples_of(manifest, tokenizer, places, benchmark)
            prompts = Prompts.from_model(recorded(manifest).model, tokenizer)
        except Exception as error:  # a stranger's configuration can raise anything in libraries
            other = isinstance(error, OtherData) and makes_its_own(manifest)
            missing.append(f"{'its samples' if tokenizer else 'its tokenizer'}: {' '.join(str(error).split())[:200]}")
    return Materials(tokenizer, samples, tuple(missing), prompts, benchmark, other)


def makes_its_own(manifest: Mapping[str, Any]) -> bool:
    """Whether this version of kvbench, or of a plug-in, made the run's samples without data of the machine."""
    benchmark = recorded(manifest).benchmark
    made_by = versions_of([str(benchmark.get(TARGET))])
    same_version = manifest.get("kvbench") == __version__ and made_by.items() <= (manifest.get("plugins") or {}).items()
    return same_version and not any(is_place(leaf.key) and leaf.value for leaf in leaves(benchmark, "benchmark"))


def tokenizer_of(manifest: Mapping[str, Any], places: Places) -> PreTrainedTokenizerBase:
    """Raises an error where this machine lacks the run's tokenizer or has another one."""
    folder = model_folder_of(manifest, places)
    model = manifest.get("model") or {}
    hashes = (model.get("tokenizer") or model).get("files") or {}  # random weights have another model's tokenizer
    for name in ("tokenizer.json", "tokenizer_config.json"):
        if name in hashes and (not (folder / name).is_file() or file_hash(folder / name) != hashes[name]):
            raise ValueError(f"{folder.name} has another {name} than the run's model")
    tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
    read = recorded(manifest).model
    return as_read(tokenizer, str(read.get("chat_template")), read.get("template_args"))


def model_folder_of(manifest: Mapping[str, Any], places: Places) -> Path:
    """This machine's folder of the model's files. Raises an error if there is none."""
    model, config = manifest.get("model") or {}, recorded(manifest).model
    if path := places.get("model.path"):
        return Path(path)
    if config.get("path") is not None:
        raise ValueError("the run's model lies in a folder: model.path=FOLDER gives its path here")
    if (package := config.get("embedded")) in PACKAGES:
        return embedded_folder(package)
    revision = model.get("revision")
    return Path(
        snapshot_download(
            model["source"],
            revision=revision and checked_revision(revision),
            local_files_only=True,
            allow_patterns=["*.json", "*.model"],
        )
    )


def samples_of(
    manifest: Mapping[str, Any], tokenizer: PreTrainedTokenizerBase, places: Places, benchmark: Benchmark | None = None
) -> list[Sample]:
    """All samples of a run's benchmark. Raises an error where this machine lacks its data or has others."""
    benchmark = benchmark or benchmark_of(manifest, places)
    with within_reach(places), at_most(limits.SAMPLES_MADE):
        samples = benchmark.samples(cast(PreTrainedTokenizerBase, CountedTokenizer(tokenizer, limits.TEXT)))
    metrics = [sample.meta["metric"] for sample in samples if sample.meta.get("metric") is not None]
    if not all(map(has_name, metrics)):
        raise ValueError("a sample's metric is a function that kvbench does not have")
    if (data := data_hash(samples)) != manifest.get("data_sha256"):
        raise OtherData(data)
    return samples


def benchmark_of(manifest: Mapping[str, Any], places: Places) -> Benchmark:
    """A run's benchmark with its data. Raises an error where this machine lacks the data or kvbench the class."""
    config = placed(recorded(manifest).benchmark or manifest["benchmark"], places, "benchmark")
    check_functions(config, "benchmark")
    with within_reach(places), at_most(limits.SAMPLES_MADE):
        benchmark: Benchmark = build(config, "benchmark", Benchmark, known)
    limits.check_length(benchmark.longest)
    return benchmark


class OtherData(ValueError):
    """The benchmark makes other samples here than in the run."""

    def __init__(self, data: str):
        super().__init__(f"the benchmark makes other samples here: data_sha256 {data[:12]}…")


@contextmanager
def offline() -> Iterator[None]:
    """Within the block the hub's libraries read only their cache, whatever repository a folder names."""
    before = constants.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before
