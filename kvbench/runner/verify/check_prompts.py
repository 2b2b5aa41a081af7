"""Whether prompts have the recorded lengths, which r and all ratios of bytes are shares of."""

from collections.abc import Iterator, Mapping
from typing import Any

from kvbench.benchmarks import Sample
from kvbench.records.recorded_configuration import recorded
from kvbench.runner.verify.folder import Folder, named
from kvbench.runner.verify.materials import Materials
from kvbench.runner.verify.prompts import Prompts
from kvbench.runner.verify.verdict import Check, Findings, Note, Verdict, missing, wrong


def prompts_fit(folder: Folder, materials: Materials) -> Check:
    """Every prompt and question counted again under the protocol of the run's configuration."""
    findings = Findings()
    if materials.samples is None or materials.prompts is None:
        findings.missing += materials.missing or ("the model's configuration describes no prompts",)
    else:
        samples = {sample.id: sample for sample in materials.samples}
        for record, manifest in folder.with_manifests():
            findings.collect(
                named(record), _lengths, record, manifest, samples.get(record["sample"]), materials.prompts
            )
    return findings.judged("prompts", "the tokens of every prompt and question, counted again", Verdict.PROVEN)


def _lengths(
    record: Mapping[str, Any], manifest: Mapping[str, Any], sample: Sample | None, prompts: Prompts
) -> Iterator[Note]:
    config = recorded(manifest)
    if record["kind"] == "serve":
        yield missing("the prompts of a load are counted by its server")
        return
    if sample is None:
        yield missing("its sample is not the benchmark's")
        return
    if config.question is None:
        yield missing("its configuration does not say whether the question is compressed")
        return
    counted = prompts.lengths(sample, config.question, config.first_token)
    # an engine reads prompt and question before its answer, and its cache holds both
    context = sum(counted) if record["kind"] == "engine" else counted.context
    if record["prompt_tokens"] != context:
        yield wrong(f"its prompt has {context} tokens, not {record['prompt_tokens']}")
    more = record.get("question_tokens", counted.question) - counted.question
    if not 0 <= more <= counted.answers:
        least = f"at least {counted.question}" if counted.answers else counted.question
        yield wrong(f"{least} tokens are read after its compression, not {record['question_tokens']}")
