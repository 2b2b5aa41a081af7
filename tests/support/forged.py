"""A run's folder as a forger leaves it: edited, then with keys and checksums made again as kvbench makes them."""

import json
import shutil
from pathlib import Path

from transformers import PreTrainedTokenizerBase

from kvbench.records.identity import identity_of, setting_hash
from kvbench.records.manifest import read_manifests, write_manifest
from kvbench.records.samples import SAMPLES, read_samples
from kvbench.records.store import RECORDS, read_records, to_line
from kvbench.utils.hashing import digest


class Forged:
    """The records, manifest and samples of a copied folder, to be changed and sealed again."""

    def __init__(self, honest: Path, folder: Path, tokenizer: PreTrainedTokenizerBase):
        self.tokenizer = tokenizer
        self.folder = Path(shutil.copytree(honest, folder))
        self.records = read_records(folder / RECORDS)[0]
        (self.manifest,) = read_manifests(folder)[0].values()
        self.samples = read_samples(folder)
        self.extra: list[dict] = []  # more manifests

    def of(self, setting: str) -> list[dict]:
        """The records of a setting, by sample."""
        return [record for record in self.records if record["setting"] == setting]

    def seal(self, keys: bool = True) -> Path:
        """Write everything; `keys`: records' keys follow from what they say now."""
        manifests = {one["run"]: one for one in [self.manifest, *self.extra]}
        if keys:
            for record in self.records:
                text = json.dumps([record["method"], record["parameters"], record["ratio"], record["budget"]])
                record["key"] = digest(digest(identity_of(manifests[record["run"]])), record["sample"], text)
        (self.folder / RECORDS).write_bytes(b"".join(map(to_line, self.records)))
        (self.folder / SAMPLES).write_text("".join(json.dumps(row) + "\n" for row in self.samples.values()))
        for one in manifests.values():
            write_manifest(self.folder / "manifests" / f"{one['run'].replace(':', '')}.json", one)
        return self.folder


def request(manifest: dict, record: dict) -> None:
    """Put a record's setting among those that its run requested."""
    manifest["settings"].append(record["setting"])
    manifest["requested"].append(setting_hash(record))
