"""The sections of `kvbench --help SECTION`: a line about each choice, read from the YAML files."""

from collections.abc import Callable
from functools import partial

from rich.markup import escape

from kvbench.configuration.conf import CONF, brought_by, choices, options
from kvbench.papers.gpu import H100
from kvbench.papers.recorded_costs import short_cost
from kvbench.runner.commands import commands
from kvbench.runner.help_lines import described, sentences
from kvbench.runner.help_methods import grouped
from kvbench.runner.help_parts import metrics, parts
from kvbench.utils.lines import columns, wrapped
from kvbench.utils.yaml_comments import commented

# groups of choices: what to type, and a remark
GROUPS = {
    "method": ("method=", "one or a list"),
    "engine": ("engine=", "another program that answers, in place of methods; its keys are engine.KEY="),
    "model": ("model=", ""),
    "benchmark": ("benchmark=", ""),
    "probe": ("probe=", "one or a list; observes layers during prefill, in place of methods"),
    "experiment": ("+experiment=", "a published table or figure; -m runs each model that it compares"),
}
# groups whose choices are parts of methods
PARTS = tuple(sorted({path.parent.name for path in CONF.glob("*/*.yaml")} - {*GROUPS}))

# what is chosen inside methods and benchmarks: what to type, and a remark
INNER = {
    **{
        part: (
            f"{part}@method.NAME.{part}=",
            f"its keys are method.NAME.{part}.KEY=; +{part}@… where a method has none",
        )
        for part in PARTS
    },
    "metric": ("benchmark.metric=", "of benchmark=jsonl, and metric of its rows; or a function of your own"),
}

SECTIONS = (*GROUPS, *INNER, "settings", "commands", "all")


def section_named(word: str) -> str | None:
    """The section that a word names, in the singular or the plural; None for any other word."""
    return next((name for name in SECTIONS if word.removesuffix("s") == name.removesuffix("s")), None)


def section(name: str) -> list[str]:
    """The lines of one of SECTIONS."""
    # called for what is shown alone: they read every file of a group
    lines_of: dict[str, Callable[[], list[str]]] = {
        **{group: partial(_group, group) for group in (*GROUPS, *INNER)},
        "method": _methods,
        "experiment": _experiments,
        "settings": _settings,
        "commands": _commands,
    }
    return [line for lines in lines_of.values() for line in (*lines(), "")] if name == "all" else lines_of[name]()


def heading(group: str) -> list[str]:
    """What to type for a group, and a remark."""
    key, remark = (GROUPS | INNER)[group]
    first, *rest = wrapped(f"{key}  {remark}".rstrip(), columns())
    return [escape(first).replace(key, f"[bold]{key}[/]", 1), *map(escape, rest)]


def _group(group: str) -> list[str]:
    return [*heading(group), *described(about(group))]


def about(group: str) -> dict[str, str]:
    """The choices with a line about each, which names the plug-in that has it."""
    if group == "metric":
        return metrics()
    texts = parts(group) if group in PARTS else options(group)
    owners = {name: brought_by(group, name) for name in choices(group)}
    return {name: f"{text} ({owners[name]})".strip() if owners[name] else text for name, text in texts.items()}


def _methods() -> list[str]:
    """In groups, with the presets of each method below it."""
    texts, groups = about("method"), grouped()
    width = max(len(row.name) for rows in groups.values() for row in rows)
    lines = heading("method")
    for group, rows in groups.items():
        lines += ["", f"[bold]{escape(group)}[/]"]
        for row in rows:
            lines += described({row.name: texts[row.name]}, width)
            if row.presets:
                lines += [f"[dim]{line}[/]" for line in described({"": f"also {', '.join(row.presets)}"}, width)]
    return [
        *lines,
        "",
        *sentences(
            "kvbench --help NAME describes a method's presets: kvbench --help snapkv",
            "kvbench --help method WORD finds methods by a word of their name or description: --help method heads",
        ),
    ]


def _experiments() -> list[str]:
    """The group with the cost of each experiment, and the estimates' assumptions."""
    costs = {name: short_cost(name) for name in choices("experiment")}
    texts = {name: f"{text} ({costs[name]})" if costs[name] else text for name, text in options("experiment").items()}
    return [
        *heading("experiment"),
        *described(texts),
        "",
        *sentences(
            f"GPU hours and memory are estimated from the models' shapes, in bfloat16 {H100.assumptions}, for answers "
            "of full length; compression, scoring and the launches of kernels come on top.",
            "The published values, and the cost of a smaller run:",
        ),
        r"  kvbench table +experiment=NAME published=true \[model=NAME] \[limit=N]",
    ]


def _settings() -> list[str]:
    return [
        "[bold]Settings[/]",
        *described(settings()),
        "",
        *sentences(
            "-m runs a job for each combination of values: -m model=llama3-8b,mistral-7b-v0.2. hydra/launcher=slurm "
            "with shards=8 'shard=range(0,8)' runs it as a Slurm array; kvbench status [FOLDER] shows the progress.",
            "--config-dir FOLDER adds your own method/NAME.yaml, model/NAME.yaml, … to every command.",
            "--cfg job prints the whole configuration, --hydra-help explains Hydra's, --version prints the version.",
            "HYDRA_FULL_ERROR=1 shows the traceback of an error.",
            'eval "$(kvbench -sc install=bash)" completes names and keys in bash and zsh;',
            "kvbench -sc install=fish | source does so in fish.",
        ),
    ]


def _commands() -> list[str]:
    texts = {f"kvbench {name}": command.about for name, command in commands().items()}
    return ["[bold]Other commands[/], each with --help", *described(texts)]


def settings() -> dict[str, str]:
    """The command line's keys with a comment on each: those of config.yaml, and further keys and their forms."""
    comments = commented((CONF / "config.yaml").read_text(encoding="utf-8"))
    pairs = [
        *(
            (f"{key}={setting.value}", setting.about)
            for key, setting in comments.items()
            if key not in GROUPS and not key.startswith("hydra")
        ),
        ("model=org/name, model=/folder, model=/file.gguf", "a model without a preset, on the hub or on this machine"),
        ("model.path=FOLDER", "a local copy of the model"),
        ("model.template_args={KEY: VALUE}", "variables of the chat template, e.g. enable_thinking of Qwen3"),
        ("model.stop_tokens=[TOKEN]", "tokens that end an answer besides the model's own, by text or number"),
        ("model.load_args={KEY: VALUE}", "arguments of from_pretrained: quantization_config, rope_parameters"),
        ("method.NAME.KEY=VALUE", "a method's own parameters, e.g. method.snapkv.scoring.window=16"),
        *((f"{INNER[part][0]}…", f"exchange the {part}: {', '.join(choices(part))}") for part in PARTS),
    ]
    return dict(pairs)
