"""Folders of runs with known scores, written by the real store as runs of an experiment are; and their tables."""

import hashlib
import random
from collections.abc import Callable, Sequence
from pathlib import Path

from kvbench.configuration import Configuration
from kvbench.evaluation.settings import Setting, is_full, settings_of
from kvbench.papers.columns import requested_tasks
from kvbench.papers.command_line import configurations
from kvbench.records.manifest import write_manifest
from kvbench.records.store import Store
from kvbench.report.tables.make import make
from kvbench.utils.hashing import digest
from tests.support import records
from tests.support.titles import untitled

LAYERS = 4


def records_of(
    cfg: Configuration,
    score: Callable[[Setting, str, int], float],
    samples: int = 4,
    lengths: Sequence[int | None] = (None,),
    skip: Callable[[Setting, str, int], bool] = lambda *_: False,
    **fields: object,
) -> list[dict]:
    """The records of every setting of a configuration, `samples` of each task; `score` in 0 to 1 says how good.

    `skip` leaves some out, `fields` are set on all.
    """
    benchmark = cfg.benchmark["_target_"].rpartition(".")[2].lower().removeprefix("pyramidkv")
    settings = settings_of(cfg)
    return [
        records.record(
            **{
                "key": digest(cfg.benchmark, cfg.model.name, task, i, length, setting.key, fields),
                "run": "made",
                "benchmark": benchmark,
                "model": cfg.model.name,
                "sample": f"{task}:{length or ''}{i}",
                "setting": setting.label,
                "method": setting.name,
                "parameters": setting.parameters,
                "ratio": setting.ratio,
                "budget": setting.budget,
                "task": task,
                **({} if length is None else {"length": length}),
                "question": cfg.question,
                "prediction": "…",
                "scores": {"score": score(setting, task, i), "other": 0.0},
                "r": 1.0 if is_full(setting) else setting.ratio or 0.25,
                "r_bytes": 1.0 if is_full(setting) else 0.5,
                "kept_per_layer": [100.0] * LAYERS,
                "decode_steps": 8,
                **fields,
            }
        )
        for length in lengths
        for task in (requested_tasks(cfg.benchmark) or ["needle"])
        for i in range(samples)
        for setting in settings
        if not skip(setting, task, i)
    ]


def write_run(folder: Path, cfg: Configuration, made: Sequence[dict], shard: str = "", **manifest: object) -> Path:
    """A folder of records with its manifest, `manifest` overriding what it says."""
    with Store(folder, shard) as store:
        for each in made:
            store.append(each)
    write_manifest(
        folder / "manifests" / f"made{shard}.json",
        records.manifest(
            **{
                "run": "made",
                "config": cfg.plain,
                "model": {"source": "hub", "revision": "0123456789abcdef"},
                "dtype": "torch.bfloat16",
                "device": "cuda",
                "benchmark": {key: value for key, value in cfg.benchmark.items() if key != "about"},
                "data_sha256": hashlib.sha256(b"data").hexdigest(),
                "question": cfg.question,
                "git": "abcdef0123456789",
                "hardware": {"gpus": ["GPU of the tests"], "cpu": "CPU"},
                **manifest,
            }
        ),
    )
    return folder


def make_runs(top: Path, *overrides: str, **options) -> list[Path]:
    """A folder below `top` for each model of an experiment."""
    cfgs = configurations(overrides)
    return [write_run(top / cfg.model.name, cfg, records_of(cfg, **options)) for cfg in cfgs]


# Tables of such runs

SMALL = "+experiment=simlayerkv_table11"  # three tasks and their average, FullKV and SimLayerKV
SCORES = {
    "full": {"narrativeqa": [1, 0, 0], "vcsum": [0.5, 0.5, 0.5], "lcc": [0.2, 0.4, 0.9]},
    "simlayerkv_paper": {"narrativeqa": [1, 1, 0], "vcsum": [0.5, 0.5, 0.5], "lcc": [0.1, 0.3, 0.8]},
}


def known(setting, task, i) -> float:
    return SCORES[setting.name][task][i]


def drawn(setting, task, i) -> float:
    """Scores that depend on setting, task and sample, the same on every machine."""
    easy = random.Random(f"{task} {i}").random()
    return min(1, max(0, easy + random.Random(f"{setting.label} {task} {i}").uniform(-0.2, 0.15)))


def table(top: Path, *overrides: str, ending: str = "md", out: Path | None = None) -> str:
    """What the command writes for the runs in a folder."""
    out = out or top.parent / f"{top.name}-tables"
    paths = make(overrides, [str(top)], str(out))
    return next(path for path in paths if path.suffix == f".{ending}").read_text()


def rows(markdown: str, title: str) -> dict[str, list[str]]:
    """The rows of one table of a Markdown text by their first cell, or by the first two where a ratio is requested.

    Methods have their names again in place of their titles.
    """
    part = markdown.split(f"## {title}")[1].split("##")[0]
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in part.splitlines() if line.startswith("|")]
    labels = 2 if "requested" in lines[0] else 1
    return {untitled(" ".join(line[:labels])): line[labels:] for line in lines if any(line)}
