"""Do llama.cpp and kvbench's own formats say the same of a cache's type? `python -m scripts.results.verdicts`

Both read the same GGUF file and answer the same prompts of 14 codes: llama.cpp through its server, kvbench in bfloat16
with the formats that it computes itself. Each type is compared with its own side's 16-bit cache, as `kvbench compare`
does. Records stay in runs/verdicts, so a stopped run goes on where it was; tables and what computed them go to
results/engines/verdicts (--out names another folder).

--of chooses models, --sides one side, --tables only makes the tables of the records that are there. Both sides are run
by one thread by default. docs/models.md says how to install the models.
"""

import argparse
import json
from pathlib import Path

from kvbench.configuration import Configuration, configured
from kvbench.records import load
from kvbench.runner import run as command
from scripts.frame import script_parser, until_stopped
from scripts.results.engines import provenance
from scripts.results.served import Table, asked, engine, written
from scripts.results.served_servers import QWEN, QWEN_1_5B, ROOT, llama_cpp
from scripts.results.verdicts_tables import LLAMA, OURS, compared, table

PROMPTS = {QWEN: 60, QWEN_1_5B: 40}  # asked of each model
TITLE = "llama.cpp "
# llama.cpp's type of keys and values, and a preset that stores the same bytes; the first are the baselines. llama.cpp
# rotates what it quantises, so its q4_0 stands beside both of kvbench's.
TYPES = {
    "f16": ("f16", "full"),
    "q8_0": ("q8_0", "ggml_q8_0"),
    "q4_0": ("q4_0", "ggml_q4_0"),
    "q4_0, rotated": ("q4_0", "ggml_q4_0_rotated"),
    "q8_0/q4_0": ("q8_0/q4_0", "ggml_q8_0_q4_0"),
}
FLAGS = tuple(dict.fromkeys(flag for flag, _ in TYPES.values()))
SETTINGS = {name: {LLAMA: TITLE + flag, OURS: preset} for name, (flag, preset) in TYPES.items()}
MODELS = {model.name: model for model in PROMPTS}


def asked_of(name: str, options: argparse.Namespace) -> int:
    """The number of prompts of a model."""
    return options.prompts or PROMPTS[MODELS[name]]


def run(name: str, side: str, options: argparse.Namespace) -> Configuration:
    """The run of one side over the prompts of a model."""
    model, folder = MODELS[name], options.records.resolve() / name
    prompts = written(folder, 14)
    shared = [*asked(prompts), f"model={name}", f"limit={asked_of(name, options)}", f"output_dir={folder / side}"]
    if side == LLAMA:
        return configured([*shared, *engine(Table(model, 14, llama_cpp, FLAGS, TITLE), options)])
    settings = [
        f"method=[{','.join(preset for _, preset in TYPES.values())}]",
        "model.dtype=bfloat16",
        "decode.batch=all",
        "distance=true",
    ]
    return configured([*shared, *settings])


def whole(name: str, side: str, options: argparse.Namespace) -> Path | None:
    """The folder of one side's records of a model; None before every type has answered every prompt."""
    for folder in {
        file.parent for file in (options.records / name / side).glob("*/records.jsonl") if file.stat().st_size
    }:
        answered = load(folder).groupby("setting")["sample"].nunique()
        if all(answered.get(labels[side], 0) >= asked_of(name, options) for labels in SETTINGS.values()):
            return folder
    return None


def write(options: argparse.Namespace) -> None:
    """The tables of all models of which both sides have answered every prompt."""
    both = {}
    for name in MODELS:
        sides = {side: folder for side in (LLAMA, OURS) if (folder := whole(name, side, options))}
        if len(sides) == 2:
            both[name] = sides
    for name in MODELS.keys() - both.keys():
        print(f"{name} is left out: a side has not answered every prompt")
    if not both:
        raise SystemExit(f"{options.records} has no model of which both sides have answered every prompt")
    frame = compared(both, SETTINGS, options.margins)
    options.out.mkdir(parents=True, exist_ok=True)
    frame.to_csv(options.out / "verdicts.csv", index=False, float_format="%.4g")
    (options.out / "verdicts.md").write_text(table(frame, options.margins), encoding="utf-8")
    made_by = [manifest for sides in both.values() for folder in sides.values() for manifest in provenance(folder)]
    (options.out / "provenance.json").write_text(json.dumps(made_by, indent=1) + "\n", encoding="utf-8")


def main() -> None:
    parser = script_parser(__doc__)
    parser.add_argument("--of", nargs="*", default=[*MODELS], choices=MODELS, help="models")
    parser.add_argument("--sides", nargs="*", default=[LLAMA, OURS], choices=[LLAMA, OURS])
    parser.add_argument("--prompts", type=int, help="of each model; default: 60 at 0.5B, 40 at 1.5B")
    parser.add_argument("--margins", nargs="*", type=float, default=[0.05, 0.1], help="losses of the score to judge")
    parser.add_argument("--tables", action="store_true", help="ask nothing, and make the tables of what is there")
    parser.add_argument("--records", type=Path, default=Path("runs/verdicts"), help="folder of the records")
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "engines" / "verdicts")
    parser.add_argument("--url", default="http://127.0.0.1:8473/v1", help="where llama.cpp's server answers")
    parser.add_argument("--threads", type=int, default=1, help="of llama.cpp's server; default: %(default)s")
    parser.set_defaults(start=None, flags=None)  # of the servers that `served` is given by hand
    options = parser.parse_args()
    with until_stopped():
        for name in options.of if not options.tables else []:
            for side in options.sides:
                command.run(run(name, side, options))
        write(options)


if __name__ == "__main__":
    main()
