"""The text of `kvbench --help`."""

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from shutil import get_terminal_size
from textwrap import wrap

from rich.markup import escape

from kvbench.config import CONF, brought_by, choices, options
from kvbench.errors import unknown
from kvbench.papers.gpu import H100
from kvbench.papers.recorded_costs import short_cost
from kvbench.runner.help_methods import family, grouped
from kvbench.utils.other_words import WORDS
from kvbench.utils.plugins import declared, plugins
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


# groups that stand in parts of a method
PARTS = ("storage", "scoring", "allocation", "heads")


@dataclass(frozen=True)
class Command:
    """A command other than the run itself: the module whose `main(arguments)` it calls, and one line about it."""

    module: str
    about: str
    overrides: bool = False  # whether it takes those of the configuration, as a run does


COMMANDS = {
    "table": Command(
        "kvbench.report.tables.command",
        "make an experiment's table from its records, beside the published values",
        True,
    ),
    "figure": Command(
        "kvbench.report.figures.command",
        "draw an experiment's figures from its records, beside the published ones",
        True,
    ),
    "report": Command("kvbench.report.page.command", "write one HTML page of runs, with every sample"),
    "compare": Command(
        "kvbench.runner.compare", "compare settings of runs with a baseline on the same samples, for CI too"
    ),
    "frontier": Command(
        "kvbench.runner.frontier", "find the fewest bytes at which each method keeps 95 % of FullKV's quality", True
    ),
    "records": Command("kvbench.records.command", "list records, check that they are consistent, and export them"),
    "verify": Command(
        "kvbench.verify.command", "recompute what somebody's folder of records claims; --rerun K makes K samples again"
    ),
    "pack": Command(
        "kvbench.records.pack_command", "write a run as a small folder to hand in, without paths and names"
    ),
    "leaderboard": Command(
        "kvbench.leaderboard.command", "rank methods at equal bytes over packs and runs of any number of people"
    ),
    "status": Command("kvbench.runner.status", "show the progress of runs and their shards"),
    "score": Command("kvbench.runner.score", "score LongBench predictions again with the official metrics"),
    "calibrate": Command(
        "kvbench.runner.calibrate", "write a file of head scores, which HeadKV and DuoAttention read", True
    ),
    "check": Command(
        "kvbench.runner.check", "check your own method against the rules of docs/adding-a-method.md", True
    ),
    "ruler": Command("kvbench.runner.ruler_files", "write RULER's samples as files", True),
    "lm_eval": Command("kvbench.integrations.lm_eval.command", "run lm-evaluation-harness with kvbench's models"),
}


def commands() -> dict[str, Command]:
    """COMMANDS and those of plug-ins."""
    return COMMANDS | {
        name: Command(one["module"], one["about"]) for name, one in declared("command", COMMANDS).items()
    }


SECTIONS = (*GROUPS, "settings", "commands", "all")


def help_text(section: str | None = None) -> str:
    """What can be chosen and set, read from the YAML files: an overview, one of SECTIONS with a line about each, a
    method with its presets, a key of the configuration or of a group's files, or what is called or described by a word.

    Raises UserError for a word that nothing has.
    """
    if section is not None and section not in SECTIONS and (described := _keys(section)):
        return "\n".join(described)
    if section in choices("method"):
        return "\n".join(_lines({name: _described("method")[name] for name in family(section)}))
    if section is not None and section not in SECTIONS:
        if section in WORDS:
            return f"  {escape(section)} is {escape(WORDS[section])}"
        slip = difflib.get_close_matches(section, SECTIONS, n=1, cutoff=0.8)
        if not slip and (found := _keys_of_files(section) or _search(section)):
            return "\n".join(found)
        raise unknown("section of --help", section, SECTIONS)
    # called for what is shown alone: they read every file of a group
    parts: dict[str, Callable[[], list[str]]] = {
        **{group: partial(_group, group) for group in GROUPS},
        "method": _methods,
        "experiment": _experiments,
        "settings": _settings,
        "commands": _commands,
    }
    if section == "all":
        return "\n".join(line for part in parts.values() for line in (*part(), ""))
    return "\n".join(parts[section]() if section else _overview())


def _overview() -> list[str]:
    lines = [
        "[bold]kvbench[/]: compare KV-cache compression methods on the same prompts, budgets and bytes",
        "",
        "  kvbench                             needle in a haystack on the bundled model, with five methods",
        "  kvbench method=snapkv model=llama3-8b ratio=0.2",
        r"  kvbench 'method=\[full,snapkv]' 'ratio=\[0.1,0.2]' 'benchmark.lengths=\[1024,4096]'",
        "  kvbench -m +experiment=pyramidkv_table1",
        "  kvbench +experiment=pyramidkv_table1 model=smollm2-135m limit=2     the same, scaled down",
    ]
    for group, (key, remark) in GROUPS.items():
        lines += ["", f"[bold]{key}[/]  {remark}".rstrip()]
        for owner in ("", *(plugin.distribution for plugin in plugins())):
            names = ", ".join(name for name in choices(group) if brought_by(group, name) == owner)
            whole = f"{owner}: {names}" if owner and names else names
            lines += [f"  [cyan]{escape(line)}[/]" for line in wrap(whole, 98, break_on_hyphens=False)]
    return [
        *lines,
        "",
        *_settings(),
        "",
        *_commands(),
        "",
        "[bold]--help KEY[/] describes a key, such as ratio or decode.batch.",
        f"[bold]--help SECTION[/] describes each choice: {', '.join(SECTIONS)}",
        "[bold]--help WORD[/] finds what has a word in its name or description: --help fp8, --help needle",
    ]


def _keys_of_files(name: str) -> list[str]:
    """What GROUP.KEY is in each file of conf/GROUP that has it, such as benchmark.lengths; empty for any other name."""
    group, _, key = name.partition(".")
    if group not in GROUPS or not key:
        return []
    found = {}
    for choice in choices(group):
        file = CONF / group / f"{choice}.yaml"
        comments = commented(file.read_text(encoding="utf-8")) if file.is_file() else {}
        if key in comments:
            found[f"{choice}: {comments[key].value}"] = comments[key].about
    return [f"[bold]{escape(name)}=[/]  of each {group} that has it, with its default", *_lines(found)] if found else []


def _search(word: str) -> list[str]:
    """Every choice that has a word in its name or description, by group."""
    lines = []
    for group in (*GROUPS, *PARTS):
        about = {name: text for name, text in _described(group).items() if word.lower() in f"{name} {text}".lower()}
        if about:
            lines += ["", f"[bold]{group}[/]", *_lines(about)]
    return lines[1:]


def _group(group: str) -> list[str]:
    key, remark = GROUPS[group]
    return [f"[bold]{key}[/]  {remark}".rstrip(), *_lines(_described(group))]


def _described(group: str) -> dict[str, str]:
    """The choices with a line about each, which names the plug-in that has it."""
    owners = {name: brought_by(group, name) for name in choices(group)}
    return {name: f"{text} ({owners[name]})" if owners[name] else text for name, text in options(group).items()}


def _methods() -> list[str]:
    """In groups, with the presets of each method below it."""
    key, remark = GROUPS["method"]
    about, groups = _described("method"), grouped()
    width = max(len(row.name) for rows in groups.values() for row in rows)
    lines = [f"[bold]{key}[/]  {remark}"]
    for group, rows in groups.items():
        lines += ["", f"[bold]{escape(group)}[/]"]
        for row in rows:
            lines += _lines({row.name: about[row.name]}, width)
            if row.presets:
                lines += [f"[dim]{line}[/]" for line in _lines({"": f"also {', '.join(row.presets)}"}, width)]
    return [*lines, "", r"kvbench --help NAME describes a method's presets: kvbench --help snapkv"]


def _lines(about: Mapping[str, str], width: int = 0) -> list[str]:
    """A name and what it is, wrapped to the terminal's width."""
    width = max(width, *map(len, about))
    room = max(get_terminal_size((120, 24)).columns - width - 4, 40)
    lines = []
    for name, text in about.items():
        first, *rest = wrap(text, room, break_on_hyphens=False) or [""]
        lines.append(f"  [cyan]{escape(f'{name:<{width}}')}[/]  {escape(first)}")
        lines += [f"{'':<{width + 4}}{escape(line)}" for line in rest]
    return lines


def _experiments() -> list[str]:
    """The group with what each experiment costs, and what the estimates assume."""
    key, remark = GROUPS["experiment"]
    costs = {name: short_cost(name) for name in choices("experiment")}
    about = {name: f"{text} ({costs[name]})" if costs[name] else text for name, text in options("experiment").items()}
    return [
        f"[bold]{key}[/]  {remark}",
        *_lines(about),
        "",
        f"GPU hours and memory are estimated from the models' shapes, in bfloat16 {H100.assumptions},",
        "for answers of full length; compression, scoring and the launches of kernels come on top.",
        "The published values, and the cost of a smaller run:",
        r"  kvbench table +experiment=NAME published=true \[model=NAME] \[limit=N]",
    ]


def _settings() -> list[str]:
    return [
        "[bold]Settings[/]",
        *_lines(settings()),
        "",
        "-m runs a job for each combination of values: -m model=llama3-8b,mistral-7b-v0.2. hydra/launcher=slurm with",
        r"shards=8 'shard=range(0,8)' runs it as a Slurm array; kvbench status \[FOLDER] shows the progress.",
        "--config-dir FOLDER adds your own method/NAME.yaml, model/NAME.yaml, … to every command.",
        "--cfg job prints the whole configuration, --hydra-help explains Hydra's, --version prints the version.",
        "HYDRA_FULL_ERROR=1 shows the traceback of an error.",
        'eval "$(kvbench -sc install=bash)" completes names and keys in bash and zsh;',
        "kvbench -sc install=fish | source does so in fish.",
    ]


def _keys(name: str) -> list[str]:
    """What a key is, or each key of a section; empty for any other name."""
    comments = commented((CONF / "config.yaml").read_text(encoding="utf-8"))
    if not any(key == name or key.startswith(f"{name}.") for key in comments):
        return []
    from kvbench.configuration.describe import keys  # brings pydantic, which the other sections do without

    lines = []
    for key in keys():
        if key.name == name or key.name.startswith(f"{name}."):
            about = wrap(key.about, max(get_terminal_size((120, 24)).columns - 2, 40), break_on_hyphens=False)
            lines += [f"[cyan]{escape(f'{key.name}={key.default}')}[/]", *(f"  {escape(line)}" for line in about)]
            lines += [f"  [dim]values: {key.values.replace('`', '')}[/]"]
    return lines


def _commands() -> list[str]:
    known = commands()
    width = max(map(len, known))
    return [
        "[bold]Other commands[/], each with --help",
        *(f"  kvbench [cyan]{name:<{width}}[/]  {command.about}" for name, command in known.items()),
    ]


def settings() -> dict[str, str]:
    """The command line's keys with a comment on each: those of config.yaml, and what else is worth knowing."""
    comments = commented((CONF / "config.yaml").read_text(encoding="utf-8"))
    pairs = [
        *(
            (f"{key}={one.value}", one.about)
            for key, one in comments.items()
            if key not in GROUPS and not key.startswith("hydra")
        ),
        ("model=org/name, model=/folder, model=/file.gguf", "a model without a preset, on the hub or on this machine"),
        ("model.path=FOLDER", "a local copy of the model"),
        ("model.template_args={KEY: VALUE}", "variables of the chat template, e.g. enable_thinking of Qwen3"),
        ("model.stop_tokens=[TOKEN]", "tokens that end an answer besides the model's own, by text or number"),
        ("model.load_args={KEY: VALUE}", "arguments of from_pretrained: quantization_config, rope_parameters"),
        ("method.NAME.KEY=VALUE", "a method's own parameters, e.g. method.snapkv.scoring.window=16"),
        ("storage@method.NAME.storage=kivi", f"exchange the storage: {_names('storage')}"),
        ("scoring@method.NAME.scoring=…", f"exchange the scoring: {_names('scoring')}"),
        ("allocation@method.NAME.allocation=…", f"exchange the allocation: {_names('allocation')}"),
    ]
    return dict(pairs)


def _names(group: str) -> str:
    return ", ".join(choices(group))
