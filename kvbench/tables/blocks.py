"""What a paper's table sets apart: FullKV, then the settings at one budget or ratio after those at another."""

from collections import Counter
from collections.abc import Sequence

from kvbench.evaluation.settings import Setting, is_full

FULL = 0  # FullKV's block


def blocks(settings: Sequence[Setting]) -> list[tuple[int, Setting]]:
    """Every setting with the number of its block, block after block, within one as the methods were named.

    Where all methods have as many ratios or budgets, their first ones make a block, their second ones the next:
    papers put ratios together that only nearly agree. Else settings at an equal ratio or budget are together.
    """
    several = [setting for setting in settings if asked(setting) is not None]
    counts = Counter(setting.name for setting in several)
    if len(set(counts.values())) <= 1:
        seen: Counter = Counter()
        ranks = {}
        for setting in several:
            seen[setting.name] += 1
            ranks[setting.key] = seen[setting.name]
    else:
        values = list(dict.fromkeys(asked(setting) for setting in several))
        ranks = {setting.key: values.index(asked(setting)) + 1 for setting in several}
    alone = 1 if set(ranks.values()) <= {1} else max(ranks.values()) + 1  # thresholds, which ask for neither
    numbered = [(FULL if is_full(setting) else ranks.get(setting.key, alone), setting) for setting in settings]
    return sorted(numbered, key=lambda pair: pair[0])


def asked(setting: Setting) -> float | int | None:
    return setting.ratio if setting.budget is None else setting.budget
