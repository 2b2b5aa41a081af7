"""The commands that made the runs of a folder, for the page."""

import json
from collections.abc import Sequence
from functools import cache
from typing import Any

from kvbench.configuration.conf import composed
from kvbench.papers.command_of import command_of


def command_lines(manifests: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each distinct command (see `command_of`) with its runs; manifests without a configuration have none."""
    runs: dict[str, list[str]] = {}
    for manifest in manifests:
        if "config" in manifest:
            runs.setdefault(json.dumps(manifest["config"]), []).append(manifest["run"])
    commands, compose = [], cache(composed)
    for config, names in runs.items():
        command, exact = command_of(json.loads(config), compose)
        commands.append({"command": command, "exact": exact, "runs": names})
    return commands
