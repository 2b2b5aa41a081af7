"""Whether times are possible: for a machine, and within the run."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from kvbench.records.identity import prefill_of
from kvbench.records.recorded_configuration import recorded
from kvbench.runner.verify.check_bytes import ELEMENT
from kvbench.runner.verify.check_code import preset_of
from kvbench.runner.verify.folder import Folder, named
from kvbench.runner.verify.verdict import Check, Findings, Note, missing, wrong

# Far beyond any processor that is sold, per GPU or CPU machine: operations and bytes of memory in a second.
FLOPS = {"cuda": 2e16, "cpu": 1e15}
BANDWIDTH = {"cuda": 5e13, "cpu": 1e13}
SLACK = 1.0  # seconds: a run's duration has one decimal


def times_fit(folder: Folder) -> Check:
    """No time is negative, shorter than any machine takes, or longer than its run."""
    findings = Findings()
    passes: defaultdict[str, defaultdict[float, list[float]]] = defaultdict(lambda: defaultdict(list))
    if kinds := sorted({record["kind"] for record in folder.records} - {"method"}):
        findings.missing.append(f"the times of records of kind {' and '.join(kinds)} are not compared")
    for record, manifest in folder.with_manifests():
        if record["kind"] != "method":
            continue
        findings.collect(named(record), _possible, record, manifest)
        findings.collect(named(record), _within, record, manifest)
        passes[record["run"]][prefill_of(record) or 0.0].append(record["decode_seconds"] or 0)
    for run, times in passes.items():
        # settings of one prefill may decode as a batch, and samples may share a prefill: the run took at least this
        least = sum(prefill + max(decodes) for prefill, decodes in times.items())
        wall = folder.manifests[run].get("wall_seconds")
        if not isinstance(wall, int | float):
            findings.missing.append(f"run {run} does not say how long it took")
        elif least > wall + SLACK:
            findings.wrong.append(f"run {run}: its records took {least:.1f} s at least, the run {wall:.1f} s")
    return findings.judged("times", "every time against the run's, and against what processors can do")


def _within(record: Mapping[str, Any], manifest: Mapping[str, Any]) -> Iterator[Note]:
    wall = manifest.get("wall_seconds")
    for name, value in record.items():
        if name.endswith("_seconds") and isinstance(wall, int | float) and (value or 0) > wall + SLACK:
            yield wrong(f"{name} is {value:.1f} s, and its whole run took {wall:.1f} s")


def _possible(record: Mapping[str, Any], manifest: Mapping[str, Any]) -> Iterator[Note]:
    names = [name for name in record if name.endswith("_seconds") and isinstance(record[name], int | float)]
    if negative := [name for name in names if record[name] < 0]:
        yield wrong(f"{negative[0]} is negative")
        return
    if (record.get("second_pass_seconds") or 0.0) > record["compress_seconds"]:
        yield wrong("second_pass_seconds is more than compress_seconds, of which it is a part")
    device, element = str(manifest.get("device")), ELEMENT.get(str(manifest.get("dtype")))
    machines = max(len((manifest.get("hardware") or {}).get("gpus") or []), 1)
    config = recorded(manifest).model
    preset = preset_of(config.get("name")) if config.get("shape") else None  # else the network may be another one
    weights = (preset or {}).get("parameters") or 0
    if device not in FLOPS or not element or not weights:
        what = "its device" if device not in FLOPS else "its dtype" if not element else "the size of its model"
        yield missing(f"{what} is not known here: how fast it can be is not compared")
    flops, bandwidth = FLOPS.get(device, max(FLOPS.values())), BANDWIDTH.get(device, max(BANDWIDTH.values()))
    # embeddings are looked up: half of the parameters is less than any model multiplies by
    if (
        not record["prefill_seconds"]
        or weights * record["prompt_tokens"] / record["prefill_seconds"] > flops * machines
    ):
        yield wrong(f"a prefill of {record['prompt_tokens']} tokens in {record['prefill_seconds']:.2g} s")
    steps, seconds = record["decode_steps"] or 0, record["decode_seconds"] or 0
    if steps and (not seconds or steps * weights * (element or 0) / 2 / seconds > bandwidth * machines):
        yield wrong(f"{steps} passes of decoding in {seconds:.2g} s")
