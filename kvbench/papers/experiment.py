"""An experiment: one table or figure of a paper, as a file of conf/experiment describes it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from hydra.errors import MissingConfigException

from kvbench.benchmarks.longbench.tasks import SETS
from kvbench.config import choices, composed
from kvbench.errors import UserError, check_fields, unknown
from kvbench.utils.validation import choice

SHOW = ("table", "heatmap", "curve", "layers", "attention_map", "token_map", "lazy_map", "memory", "speed")


@dataclass(frozen=True)
class Experiment:
    """The `experiment:` node of a configuration: what the paper's item is, beside the settings that make it.

    show       what draws it.
    x          what a curve runs over: r, budget or a method's parameter; null: the ratio or budget asked for.
    models     all that the item compares. A run has one of them; -m makes a run for each.
    methods    where the rows of a setting's method are in the published data: a method's name there, or a mapping
               from columns of that data to the values that tell its rows from others, or null where the paper
               prints no number. A method that is not named here has its own name there.
    columns    the item's columns by their names in the published data; a task set of LongBench stands for its tasks.
    published  stem of a file in results/published; null where no number is published.
    chosen     what the paper leaves open and we settled, or where its code and its text disagree.
    per_model  values that differ between the models, read from elsewhere in the file by interpolation.
    """

    name: str
    paper: str
    item: str
    about: str
    show: str
    models: tuple[str, ...]
    columns: tuple[str, ...]
    published: str | None = None
    methods: Mapping[str, str | Mapping[str, str] | None] = field(default_factory=dict)
    chosen: tuple[str, ...] = ()
    x: str | None = None
    per_model: Mapping[str, Mapping[str, object]] = field(default_factory=dict)

    def __post_init__(self):
        choice("experiment.show", self.show, SHOW)
        for key in ("name", "paper", "item", "about"):
            if not isinstance(getattr(self, key), str) or not getattr(self, key):
                raise UserError(f"experiment.{key}={getattr(self, key)!r} must be a text")
        for key in ("models", "columns", "chosen"):
            if not all(isinstance(value, str) for value in getattr(self, key)):
                raise UserError(f"experiment.{key} must be a list of texts")
        if not self.models:
            raise UserError("experiment.models is empty: name the models that the item compares")
        for key in ("methods", "per_model"):
            if not isinstance(getattr(self, key), Mapping):
                raise UserError(f"experiment.{key}={getattr(self, key)!r} must be a mapping")
        if self.x is not None and self.show != "curve":
            raise UserError(f"experiment.x={self.x!r} is what a curve runs over: it needs show=curve, not {self.show}")

    @classmethod
    def of(cls, cfg: Mapping) -> "Experiment | None":
        """The experiment of a whole configuration or of a run's manifest; None where there is none."""
        node = cfg.get("experiment")
        if node is None:
            return None
        if not isinstance(node, Mapping):
            raise UserError(f"experiment={node!r} names a file of conf/experiment with a plus: +experiment={node}")
        check_fields("experiment", node, cls)
        return cls(
            **{key: _listed(value) if key in ("models", "columns", "chosen") else value for key, value in node.items()}
        )

    def column_names(self) -> list[str]:
        """The columns, each of LongBench's task sets as its tasks."""
        return [name for column in self.columns for name in SETS.get(column, (column,))]

    def rows(self, method: str) -> Mapping[str, str] | None:
        """Columns of the published data and their values in the rows of a setting's method; None: no number there."""
        found = self.methods.get(method, method)
        return {"method": found} if isinstance(found, str) else found


def _listed(value: object) -> tuple:
    """A list, or a single value as a list of one."""
    return tuple(value) if isinstance(value, list | tuple) else (value,)


def names() -> list[str]:
    """Every experiment that comes along, as `+experiment=` takes it."""
    return choices("experiment")


def load(name: str, *overrides: str) -> dict:
    """The whole resolved configuration of `+experiment=name` with more overrides; UserError for an unknown one.

    Inside a run of the command the files of its --config-dir count too.
    """
    try:
        return composed([f"+experiment={name}", *overrides])
    except MissingConfigException as error:
        group, _, missing = str(error.missing_cfg_file).rpartition("/")
        raise unknown(group, missing, error.options or choices(group)) from error


def chosen_methods(cfg: Mapping) -> dict:
    """The methods of a configuration without parameters that an experiment has for methods left out of the run.

    `+experiment=… method=[full,snapkv]` takes the files of the experiment's other methods away, not what the
    experiment says of them.
    """
    methods = cfg.get("method") or {}
    if cfg.get("experiment") is None:
        return dict(methods)
    return {name: node for name, node in methods.items() if not isinstance(node, Mapping) or "_target_" in node}
