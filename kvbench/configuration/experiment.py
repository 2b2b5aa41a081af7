"""An experiment: one table or figure of a paper, as a file of conf/experiment describes it."""

from collections.abc import Mapping
from dataclasses import field
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from kvbench.errors import UserError, check_fields, unknown
from kvbench.utils.checked import Names, checked
from kvbench.utils.ratios import RATIOS

Show = Literal["table", "heatmap", "curve", "layers", "attention_map", "token_map", "lazy_map", "memory", "speed"]
Text = Annotated[str, Field(min_length=1)]
# A list, or a single text as a list of one.
Texts = Annotated[list[str], BeforeValidator(lambda value: [value] if isinstance(value, str) else value)]


@checked(prefix="experiment.", frozen=True)
class Experiment:
    """The `experiment:` node of a configuration, which describes a paper's table or figure; settings are outside of it.

    show       the kind of drawing.
    models     all models that the item compares. A run has one of them; -m makes a run for each.
    columns    the item's columns by their names in the published data; a task set of LongBench means its tasks.
    published  stem of a file in results/published; null where no number is published.
    methods    where a method's rows are in the published data: a method's name there, or a mapping from columns of
               that data to the values that select its rows, or null where the paper prints no number. A method
               that is not listed has the same name there.
    chosen     decisions that the paper leaves open, and disagreements of its code and text.
    x          the horizontal axis of a curve: a ratio of the records (r, r_mean, …), budget or a method's parameter;
               null: the requested ratio or budget.
    ratios     ratios of the records in a table's columns; the last is the axis of a curve's last panel.
    per_model  values that differ between the models, read from elsewhere in the file by interpolation.
    """

    name: Text
    paper: Text
    item: Text
    about: Text
    show: Show
    models: Names
    columns: Texts
    published: str | None = None
    methods: dict[str, Any] = field(default_factory=dict)
    chosen: Texts = field(default_factory=list)
    x: str | None = None
    ratios: Names = field(default_factory=lambda: ["r", "r_bytes"])
    per_model: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if bad := [name for name in self.ratios if name not in RATIOS]:
            raise unknown("experiment.ratios", bad[0], RATIOS)
        if self.x is not None and self.show != "curve":
            raise UserError(f"experiment.x={self.x!r} is the axis of a curve: it needs show=curve, not {self.show}")

    @classmethod
    def from_section(cls, node: Mapping[str, Any] | None) -> "Experiment | None":
        """The experiment of a configuration's `experiment` section; None: the section is null."""
        if node is None:
            return None
        check_fields("experiment", node, cls)
        return cls(**node)

    def rows(self, method: str) -> Mapping[str, str] | None:
        """Columns of the published data and their values in a method's rows; None if the paper prints no number."""
        selector = self.methods.get(method, method)
        return {"method": selector} if isinstance(selector, str) else selector
