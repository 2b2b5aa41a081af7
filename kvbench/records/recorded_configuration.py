"""The configuration of a run as its manifest has it, by any version of kvbench and unchecked."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Recorded:
    """The configuration in a manifest. Keys that its version did not have are at their defaults.

    `model`, `benchmark`, `method`, `probe`, `engine` and `experiment` are sections as written; the classes that they
    name may be anybody's.
    """

    model: Mapping[str, Any]
    benchmark: Mapping[str, Any]
    method: Mapping[str, Any]
    probe: Mapping[str, Any]
    engine: Mapping[str, Any]
    experiment: Mapping[str, Any] | None
    ratio: object
    budget: object
    compress: Mapping[str, Any] | None  # decode.compress
    limit: int | None
    question: str | None  # None: unknown
    first_token: str
    memory: str
    distance: object
    shard: int
    shards: int

    @classmethod
    def from_plain(cls, config: Mapping[str, Any]) -> "Recorded":
        """From the configuration in a manifest, or the plain form of a composed one."""
        sections = {name: config.get(name) or {} for name in ("model", "benchmark", "method", "probe", "engine")}
        return cls(
            **sections,
            experiment=config.get("experiment"),
            ratio=config.get("ratio"),
            budget=config.get("budget"),
            compress=(config.get("decode") or {}).get("compress"),
            limit=config.get("limit"),
            question=config.get("question"),
            first_token=config.get("first_token", "full"),
            memory=config.get("memory", "shared"),
            distance=config.get("distance", "auto"),
            shard=config.get("shard", 0),
            shards=config.get("shards", 1),
        )


def recorded(manifest: Mapping[str, Any]) -> Recorded:
    """The configuration of a manifest's run; all defaults where the manifest has none."""
    return Recorded.from_plain(manifest.get("config") or {})
