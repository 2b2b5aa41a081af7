"""The verdicts of `kvbench compare`: of all conditions that a setting is to keep, the worst decides."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

from kvbench.report.tables.agreement import EQUAL, Agreements
from kvbench.runner.verdicts import BROKEN, CODES, UNDECIDED, WITHIN, WORSE
from kvbench.utils.console import print_line

BY_SCORE = "within by score"


class Judged(NamedTuple):
    """Whether a setting keeps a condition."""

    verdict: str  # WITHIN, UNDECIDED or BROKEN
    lacks: str = ""  # the reason of an undecided verdict, after the setting's name


class Condition(NamedTuple):
    """A condition on settings, with its verdicts."""

    name: str  # "the margin of 0.02"
    judged: Mapping[str, Judged]  # by setting
    of_answers: bool = False  # whether it limits how many answers differ

    def judge(self, setting: str) -> Judged:
        return self.judged.get(setting, Judged(UNDECIDED, f"which has no record that {self.name} is about"))


class Gate:
    """Settings with their verdicts by all conditions; without any, no setting has one."""

    def __init__(self, settings: Sequence[str], conditions: Sequence[Condition], agreed: Agreements):
        self.settings, self.conditions, self.equal = settings, conditions, agreed.get(EQUAL, {})

    @cached_property
    def verdicts(self) -> dict[str, str]:
        """WITHIN, UNDECIDED or BROKEN of each setting."""
        if not self.conditions:
            return {}
        judged = {name: [condition.judge(name).verdict for condition in self.conditions] for name in self.settings}
        return {name: max(verdicts, key=WORSE.index) for name, verdicts in judged.items()}

    @cached_property
    def by_score(self) -> list[str]:
        """Settings that are within, though most of their answers are not the baseline's, and no condition limits it."""
        if any(condition.of_answers for condition in self.conditions):
            return []
        within = [name for name, verdict in self.verdicts.items() if verdict == WITHIN and name in self.equal]
        return [name for name in within if self.equal[name].total < self.equal[name].samples / 2]

    @property
    def words(self) -> dict[str, str]:
        """Verdicts as tables show them."""
        return self.verdicts | dict.fromkeys(self.by_score, BY_SCORE)

    def tell(self) -> None:
        """A line for each condition that is broken, for each that is undecided of a setting, and for `by_score`."""
        for condition in self.conditions:
            judged = {name: condition.judge(name) for name in self.settings}
            if broken := [name for name, (verdict, _) in judged.items() if verdict == BROKEN]:
                print_line(f"{condition.name} is not kept by {', '.join(broken)}")
            for name, (verdict, lacks) in judged.items():
                if verdict == UNDECIDED:
                    print_line(f"undecided, which is not passed: {name}, {lacks}")
        for name in self.by_score:
            differ = self.equal[name].samples - self.equal[name].total
            print_line(
                f"within by its score: {name}, of whose {self.equal[name].samples:,} answers {differ:,.0f} are not the "
                "baseline's (--min-equal SHARE limits them)"
            )

    def exit_code(self, pass_undecided: bool) -> int:
        """0 if all settings are within, 1 if one is broken, else 3 (0 if undecided settings pass)."""
        worst = max(self.verdicts.values(), key=WORSE.index, default=WITHIN)
        return 0 if worst == UNDECIDED and pass_undecided else CODES[worst]
