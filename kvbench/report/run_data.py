"""What the page shows of one run's folder, as plain lists and dicts."""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from kvbench.errors import UserError
from kvbench.records import load
from kvbench.records.manifest import read_manifests
from kvbench.records.samples import read_samples
from kvbench.records.store import RECORDS, read_lines, record_files
from kvbench.report import tables
from kvbench.report.labels import with_labels
from kvbench.utils.text import count

# What a sample is told by where a run is older than samples.jsonl, which names it.
KNOWN = ("task", "group", "language", "bucket", "length", "depth", "seed")
CHUNK = 256  # records whose layers the page reads at a time, when one of them is looked at


def read_run(folder: Path) -> tuple[dict, list[list]]:
    """A run for the page, and the layers of its records in chunks (see `layers`)."""
    manifests = list(read_manifests(folder)[0].values())
    records = load(folder)
    if records.empty:
        raise UserError(f"{folder} holds no record yet")
    frame = with_labels(records, [label for manifest in manifests for label in manifest.get("settings", [])])
    metrics = list(dict.fromkeys(name for scores in frame["scores"] for name in scores))
    samples = frame.drop_duplicates("sample")
    told = read_samples(folder)
    of_sample = properties(samples, told)
    number = {sample: i for i, sample in enumerate(samples["sample"])}
    labels = list(frame["label"].unique())
    return {
        "name": folder.resolve().name,
        "caption": caption(frame, manifests, len(samples), len(labels)),
        "metrics": metrics,
        "settings": tables.settings(frame, metrics),
        "tasks": tables.tasks(frame, metrics[0]),
        "heatmap": tables.heatmap(frame, metrics),
        "properties": list(of_sample),
        "samples": asked(samples, of_sample, told),
        "records": {
            "sample": [number[sample] for sample in frame["sample"]],
            "setting": [labels.index(label) for label in frame["label"]],
            "prediction": frame["prediction"].tolist(),
            "scores": {name: [tables.number(scores.get(name)) for scores in frame["scores"]] for name in metrics},
            **{name: [tables.number(x) for x in frame[name]] for name in ("r1", "r2", "r3", "r", "r_bytes")},
        },
        "chunk": CHUNK,
        "manifests": manifests,
    }, layers(frame)


def caption(frame: pd.DataFrame, manifests: Sequence[dict], samples: int, settings: int) -> str:
    """One line: what was run on which model, under which protocol, on how much."""
    first = frame.iloc[0]
    dtypes = {str(manifest["dtype"]).removeprefix("torch.") for manifest in manifests if "dtype" in manifest}
    model = f"{first['model']} ({', '.join(sorted(dtypes))})" if dtypes else first["model"]
    memory = "" if (frame["memory"] == "shared").all() else f" · memory {first['memory']}"
    return (
        f"{first['benchmark']} · {model} · question {first['question']} when compressing{memory} · "
        f"{count(samples, 'sample')} · {count(settings, 'setting')} · {count(len(frame), 'record')}"
    )


def properties(samples: pd.DataFrame, told: dict[str, dict]) -> dict[str, list]:
    """What tells one sample from another (task, length, depth …), a value per sample; and the prompt's tokens."""
    names = dict.fromkeys(name for row in told.values() for name in row.get("meta", {})) or KNOWN
    columns = {name: samples[name] for name in names if name in samples}
    return {
        name: [tables.plain(value) for value in column]
        for name, column in columns.items()
        if column.map(lambda value: isinstance(value, str | int | float)).all() and column.nunique() > 1
    } | {"tokens": samples["prompt_tokens"].tolist()}


def asked(samples: pd.DataFrame, of_sample: dict[str, list], told: dict[str, dict]) -> dict[str, list]:
    """Columns, a value per sample. A run made before samples were told of has empty prompts."""
    rows = [told.get(sample, {}) for sample in samples["sample"]]
    return {
        "id": samples["sample"].tolist(),
        "answers": samples["answers"].tolist(),
        "end": [row.get("prompt_end", "") for row in rows],
        "characters": [row.get("prompt_characters", 0) for row in rows],
        "question": [row.get("question", "") for row in rows],
        "prefix": [row.get("prefix", "") for row in rows],
        **{f"property {name}": values for name, values in of_sample.items()},
    }


def layers(frame: pd.DataFrame) -> list[list]:
    """Per record the share of tokens kept by each layer, and where they lie (see kvbench.where), in chunks.

    Positions are null for a record made before they were recorded; those of a layer are where it has none to tell.
    """
    shares = [
        [round(kept / n, 4) for kept in layers]
        for layers, n in zip(frame["kept_per_layer"], frame["prompt_tokens"], strict=True)
    ]
    known = frame["kept_positions"].tolist() if "kept_positions" in frame else [None] * len(frame)
    positions = [texts if isinstance(texts, list) else None for texts in known]
    rows = [list(pair) for pair in zip(shares, positions, strict=True)]
    return [rows[start : start + CHUNK] for start in range(0, len(rows), CHUNK)]


def find_runs(paths: Sequence[Path]) -> list[Path]:
    """The run folders among `paths` and right below those that are none, each once; UserError for a path without."""
    found: dict[Path, Path] = {}
    for path in paths:
        if not path.is_dir():
            raise UserError(f"{path} is no folder" if path.exists() else f"there is no folder {str(path)!r}")
        inside = [path] if record_files(path) else [p for p in sorted(path.iterdir()) if p.is_dir() and record_files(p)]
        if not inside:
            raise UserError(f"{path} holds no {RECORDS}, and no folder in it does")
        for folder in inside:
            found.setdefault(folder.resolve(), folder)
    return list(found.values())


def without_outputs(folder: Path) -> str:
    """What a run measured instead of answers, which the page cannot show: "probes" or "speed"; else empty."""
    kinds = (record["kind"] for path in record_files(folder) for _, record in read_lines(path) if record)
    return {"probe": "probes", "speed": "speed"}.get(next(kinds, "method"), "")
