"""Writes docs/configuration.md from the configuration's keys: python -m scripts.maintenance.make_configuration_doc"""

from pathlib import Path

from kvbench.configuration.describe import keys

DOC = Path(__file__).parents[2] / "docs" / "configuration.md"
INTRO = """\
# Keys of the configuration

Made from the comments of `conf/config.yaml` and the types of `kvbench/configuration/` by `python -m
scripts.maintenance.make_configuration_doc`. Every key is KEY=VALUE on the command line and a keyword of `kvbench.run`;
a key after a dot, such as `decode.batch=4`, is one of a section. Each line has a key with its default, its values and
its meaning, as `kvbench --help KEY` says them. `python -m kvbench --cfg job` prints the whole configuration. A wrong
value is one line on standard error and exit code 2, before a model is loaded.

`method`, `model`, `benchmark`, `probe`, `engine` and `experiment` name files in `conf/`; the parameters inside each are
those of the class that the file names: [methods](methods.md), [models](models.md), [benchmarks](benchmarks.md),
[engines](engines.md).
"""


def main() -> None:
    DOC.write_text(document(), encoding="utf-8")


def document() -> str:
    """docs/configuration.md."""
    lines = [INTRO]
    lines += [f"- `{key.name}={key.default}` ({key.values}): {_escaped(key.about)}" for key in keys()]
    return "\n".join([*lines, ""])


def _escaped(text: str) -> str:
    """As Markdown shows it as it is."""
    return text.replace("_", "\\_").replace("[", "\\[").replace("*", "\\*")


if __name__ == "__main__":
    main()
