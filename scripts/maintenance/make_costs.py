"""Writes kvbench/papers/costs.csv, the cost of each experiment: python -m scripts.maintenance.make_costs"""

import csv

from kvbench.papers.command_line import configurations
from kvbench.papers.cost import cost, row_of
from kvbench.papers.experiment import names
from kvbench.papers.recorded_costs import COLUMNS, COSTS


def main() -> None:
    rows = [row_of(name, cost(configurations([f"+experiment={name}"]))) for name in names()]
    with COSTS.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
