"""Writes kvbench/papers/costs.csv, the cost of each experiment: python -m scripts.maintenance.make_costs"""

import csv

from hydra import compose, initialize_config_dir

from kvbench.configuration import Configuration
from kvbench.configuration.conf import CONF
from kvbench.papers.command_line import configurations
from kvbench.papers.cost import cost, row_of
from kvbench.papers.experiment import names
from kvbench.papers.recorded_costs import COLUMNS, COSTS
from kvbench.runner.sweep import jobs


def main() -> None:
    rows = [row_of(name, cost(every_run(name))) for name in names()]
    with COSTS.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def every_run(experiment: str) -> list[Configuration]:
    """The configurations of `python -m kvbench -m +experiment=NAME`: of all values that the experiment sweeps over by
    itself, models or both protocols of a question."""
    with initialize_config_dir(str(CONF), version_base="1.3"):
        composed = compose("config", [f"+experiment={experiment}"], return_hydra_config=True)
    return [cfg for job in jobs(composed) for cfg in configurations(job)]


if __name__ == "__main__":
    main()
