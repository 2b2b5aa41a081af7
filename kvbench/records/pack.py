"""A pack for others: a run's records, manifests and samples' hashes, without paths and the machine's name."""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from kvbench.errors import UserError, on_disk
from kvbench.records.consistency import differences
from kvbench.records.manifest import read_manifests, write_manifest
from kvbench.records.samples import read_samples
from kvbench.records.store import PACK, read_records, record_files
from kvbench.utils.extras import require
from kvbench.utils.files import appearing, replacing
from kvbench.utils.links import check_held
from kvbench.utils.model_keys import IDENTIFYING
from kvbench.utils.places import PLACES

SAMPLE_HASHES = "samples.parquet"
SAMPLE_FIELDS = ("sample", "row_sha256", "fields_sha256")

# Fields of a manifest that a pack keeps. A field that a later version adds is left out unless it names nobody.
KEPT = frozenset(
    "run number started ended status wall_seconds records wanted there settings requested config model chat_template "
    "dtype checkpoint_dtype device benchmark data_sha256 question first_token memory kvbench git python packages "
    "plugins kernels sdpa sdpa_decode reads_alike unrotated_layers weights_format hardware variables versions".split()
) | {*IDENTIFYING}
# Keys of the configuration that name places on the machine, or accounts.
PLACES_OF_CONFIG = PLACES | {"output_dir", "wandb", "path", "command"}
LEFT_OUT = "left out"  # instead of a value
# Fields of a record: the stretches of the prompt that each layer kept, most of a pack's bytes once compressed.
DROPPED = frozenset({"kept_positions"})
# Fields of the hardware: the operating system's build, which can name a cluster.
HARDWARE = frozenset({"system"})

# Values of environment variables that name nobody: numbers, lists of numbers, and switches.
SWITCHES = re.compile(r"[\d.,:{} ]+|true|false|yes|no|on|off", re.IGNORECASE)

BETWEEN_OPTIONS = re.compile(r"[\s=:,'\"]+")


def write_pack(folder: Path, target: Path) -> list[str]:
    """Write the pack of a run's folder to the new folder `target`; Returns the names of left out files and fields.

    Raises UserError where the folder holds no records, damaged lines or a record with two outcomes, where a record's
    parameters name a path, and where `target` exists.
    """
    require("a pack", "pyarrow")
    from kvbench.records.parquet_records import write_records

    if target.exists():
        raise UserError(f"{target} exists: name a new folder with --out")
    check_held(folder)
    records = records_to_pack(folder)
    manifests = read_manifests(folder)[0]
    left_out = dict.fromkeys(f"records.{name}" for name in sorted(DROPPED))
    with on_disk(f"write {target}"), appearing(target) as work:
        write_records(work / PACK, records)
        (work / "manifests").mkdir()
        for number, manifest in enumerate(manifests.values(), 1):  # a run's id is anybody's text, and no file's name
            write_manifest(work / "manifests" / f"{number}.json", without_places(manifest, left_out))
        write_sample_hashes(work / SAMPLE_HASHES, read_samples(folder))
    return list(left_out)


def records_to_pack(folder: Path) -> list[dict[str, Any]]:
    """The folder's records in their order, of equal copies the first. Raises UserError as `write_pack` does."""
    packed: dict[str, dict[str, Any]] = {}
    for path in record_files(folder):
        records, damaged = read_records(path)
        if damaged:
            raise UserError(
                f"{path} has {len(damaged)} damaged line(s); the run's command sets them aside and makes their records"
            )
        for record in records:
            if (first := packed.get(record["key"])) is not None:
                if fields := differences(first, record):
                    raise UserError(
                        f"{path} has record {record['key']} again with another outcome ({', '.join(fields)}): kvbench "
                        f"records {folder} --set-aside-copies keeps the first"
                    )
                continue
            packed[record["key"]] = {name: value for name, value in record.items() if name not in DROPPED}
            if path_in := next(paths(json.loads(record["parameters"])), None):
                raise UserError(
                    f"the parameters of {record['setting']!r} name {path_in!r}, which a pack must not: a key that "
                    "ends in _file takes a file, of which records have the hash"
                )
    if not packed:
        raise UserError(f"{folder} holds no records")
    return list(packed.values())


def without_places(manifest: Mapping[str, Any], left_out: dict[str, None]) -> dict[str, Any]:
    """A manifest without paths and the names of machine and user; `left_out` gets the names of removed values."""
    kept = {name: value for name, value in manifest.items() if name in KEPT}
    left_out.update(dict.fromkeys(sorted(manifest.keys() - KEPT)))
    private = {str(manifest["host"])} if manifest.get("host") else set()
    cleaned = {}
    for name, value in kept.items():
        drop = PLACES_OF_CONFIG if name == "config" else HARDWARE if name == "hardware" else frozenset()
        cleaned[name] = _cleaned(value, name, drop, private, left_out)
    if "variables" in cleaned:
        cleaned["variables"] = _switches(kept["variables"], left_out)
    return cleaned


def _switches(variables: Mapping[str, str], left_out: dict[str, None]) -> dict[str, str]:
    """Environment variables without values of free text."""
    free = {name for name, value in variables.items() if not SWITCHES.fullmatch(value)}
    left_out.update(dict.fromkeys(f"variables.{name}" for name in sorted(free)))
    return {name: LEFT_OUT if name in free else value for name, value in variables.items()}


def _cleaned(value: object, where: str, drop: frozenset[str], private: set[str], left_out: dict[str, None]) -> object:
    if isinstance(value, Mapping):
        cleaned: dict[str, object] = {}
        for key, inner in value.items():
            place = f"{where}.{key}"
            if key in drop:
                if inner is not None:
                    left_out[place] = None
                    cleaned[key] = LEFT_OUT
            else:
                cleaned[key] = _cleaned(inner, place, drop, private, left_out)
        return cleaned
    if isinstance(value, list):
        return [_cleaned(inner, where, drop, private, left_out) for inner in value]
    if isinstance(value, str) and (value in private or any(paths(value))):
        left_out[where] = None
        return LEFT_OUT
    return value


def paths(node: object) -> Iterator[str]:
    """The texts of a configuration that are absolute paths, or begin at home, and options that have one."""
    if isinstance(node, Mapping):
        for value in node.values():
            yield from paths(value)
    elif isinstance(node, list):
        for value in node:
            yield from paths(value)
    elif isinstance(node, str) and (is_path(node) or any(map(is_path, words_of_options(node)))):
        yield node


def words_of_options(text: str) -> list[str]:
    """The words of a command's options, such as an engine's flags; none of another text."""
    return BETWEEN_OPTIONS.split(text) if text.startswith("-") else []


def is_path(text: str) -> bool:
    """Whether a text is an absolute path on any system, or one that begins at home or leaves its folder."""
    return text.startswith(("/", "~", "../", "./", "file:", "\\\\")) or (
        text[1:3] in (":\\", ":/") and text[0].isalpha()
    )


def sha256_of(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def sample_hashes(row: Mapping[str, Any]) -> dict[str, str]:
    """A pack's hashes of a sample: of its row in `samples.jsonl`, and of the fields that records repeat."""
    repeated = [row.get("answers"), row.get("meta")]
    return {"row_sha256": sha256_of(row), "fields_sha256": sha256_of(repeated)}


def write_sample_hashes(path: Path, samples: Mapping[str, Mapping[str, Any]]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = [{"sample": name, **sample_hashes(row)} for name, row in samples.items()]
    kinds = pa.schema([(name, pa.string()) for name in SAMPLE_FIELDS])
    with replacing(path) as work:
        pq.write_table(pa.Table.from_pylist(rows, kinds), work, compression="zstd")


def read_sample_hashes(folder: Path) -> dict[str, dict[str, Any]]:
    """The rows of a pack's samples by sample id; empty if there is no such file."""
    path = folder / SAMPLE_HASHES
    if not path.is_file():
        return {}
    from kvbench.records.bounded_parquet import read_table

    rows = {}
    for row in read_table(path).rows:
        if not all(isinstance(row.get(name), str) for name in SAMPLE_FIELDS):
            raise UserError(
                f"{path} is not a file of `kvbench pack`: a sample has the texts {', '.join(SAMPLE_FIELDS)}"
            )
        rows[row["sample"]] = row
    return rows
