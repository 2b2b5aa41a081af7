"""Whether names fit: a preset's name its parameters, a label its ratio, and each setting one name."""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from kvbench.configuration.conf import flat
from kvbench.runner.verify.folder import Folder, named
from kvbench.runner.verify.presets import compose_together, known_model, parameters_of, presets, same_as
from kvbench.runner.verify.verdict import Check, Findings, Note, missing, wrong

NAMES = ("setting", "method", "model", "benchmark", "probe")
LONGEST = 200  # characters of a name


def names_fit(folder: Folder) -> Check:
    """The letters of names, and names of presets and methods against the objects that they name."""
    findings = Findings()
    methods: dict[str, set[str]] = {}
    models: dict[str, str] = {}
    for record in folder.records:
        findings.collect(named(record), _letters, record)
        if "parameters" in record and "method" in record and record["kind"] != "engine":
            amount = json.dumps([record["parameters"], record.get("ratio"), record.get("budget")])
            methods.setdefault(amount, set()).add(record["method"])
            models.setdefault(record["parameters"], record["model"])
    for names in methods.values():
        if len(names) > 1 and not names <= {*presets()}:
            findings.wrong.append(f"{' and '.join(map(repr, sorted(names)))} are names of one setting")
    pairs = {(name, json.loads(amount)[0]) for amount, names in methods.items() for name in names}
    presets_of = defaultdict(set)
    for name, parameters in pairs:
        presets_of[known_model(models[parameters])].add(name)
    for model, chosen in presets_of.items():
        compose_together(chosen, model)
    for name, parameters in sorted(pairs):
        findings.collect(f"method {name!r}", _preset, name, parameters, models[parameters])
    return findings.judged("names", "names of models, methods and settings against what they name")


def _letters(record: Mapping[str, Any]) -> Iterator[Note]:
    """Letters outside ASCII can look alike, change a line's direction or move a cursor."""
    for name in NAMES:
        value = str(record.get(name, ""))
        if not value.isascii() or not value.isprintable():
            yield wrong(f"its {name} is written with other characters than those of ASCII that can be seen")
        if len(value) > LONGEST:
            yield wrong(f"its {name} has {len(value):,} characters: at most {LONGEST} are read")


def _preset(name: str, text: str, model: str) -> Iterator[Note]:
    """A preset's name fits its parameters, and its parameters fit no other name."""
    recorded = {
        key: value for key, value in json.loads(text).items() if key != "versions"
    }  # of its classes, in the key
    preset = parameters_of(name, model)
    if preset is not None and not (other := different(preset, recorded)):
        return
    if twin := same_as(recorded, model):
        yield wrong(f"its parameters are those of {twin!r}")
    elif preset is not None and recorded.get("_target_") != preset["_target_"]:
        yield wrong(f"the preset of this name is {preset['_target_']}, not {recorded.get('_target_')}")
    elif preset is not None:
        yield missing(f"it has other parameters than the preset of this name: {', '.join(other)}")
    elif name in presets():
        yield missing("the preset of this name cannot be composed here")


def different(preset: Mapping[str, Any], recorded: Mapping[str, Any]) -> list[str]:
    """The values that differ from the preset's; files are the user's own."""
    preset, recorded = flat(preset), flat(recorded)
    return [
        f"{key}={recorded.get(key)} for {preset.get(key)}"
        for key in dict.fromkeys([*preset, *recorded])
        if preset.get(key) != recorded.get(key) and not key.endswith("_file")
    ]
