"""What all tests share: their order and marks. tests/support/fixtures.py has the fixtures."""

import gc
import os
from collections import Counter

# Before torch and rich start: nothing is fetched, and processes that run beside each other have one thread each.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.pop("COLUMNS", None)  # rich keeps the width it finds on import: tests that need one set it
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest

# Folders, files and fixtures whose tests are heavy without a mark of their own.
HEAVY_FOLDERS = {"end_to_end"}
HEAVY_FILES = {
    *("cache/test_batch.py", "evaluation/test_devices.py", "evaluation/test_speed_measure.py"),
    *("evaluation/test_speed_rounds.py", "figures/test_make.py", "figures/test_style.py"),
    *("methods/test_composition_parts.py", "methods/test_every_method_lengths.py", "methods/test_pyramidinfer.py"),
    *("methods/test_kivi.py", "papers/test_experiment_published.py", "papers/test_experiment.py"),
    *("records/test_store.py", "runner/test_run.py", "runner/test_run_faults.py", "runner/test_run_hostile_names.py"),
    *(
        "runner/test_run_interrupts.py",
        "runner/test_run_not_finite.py",
        "runner/test_status.py",
        "runner/test_surroundings.py",
    ),
    *("runner/test_tracking.py", "evaluation/test_probes.py", "papers/test_captions.py", "tables/test_command.py"),
    *("tables/test_make.py", "utils/test_download.py", "models/test_hub.py", "figures/test_curve_points.py"),
    *("papers/test_cost.py", "papers/test_command_of.py", "tables/test_published_table.py", "tables/test_paper.py"),
    *("runner/test_frontier.py", "runner/test_check.py", "evaluation/test_distance.py"),
    "scripts/test_make_screenshots.py",
}
HEAVY_FIXTURES = {"driver", "slurm", "real", "embedded_state"}  # the last two take a second to make
# The files that take longest, the longest first (`pytest --durations`): begun last, one would keep one worker busy.
LONGEST = (
    *("end_to_end/test_slurm.py", "end_to_end/test_notebooks.py", "papers/test_experiment.py"),
    *("evaluation/test_devices.py", "methods/test_every_method.py", "integrations/test_generate.py"),
    *("runner/test_torchrun.py", "methods/test_every_method_lengths.py", "figures/test_make.py"),
    *("cache/test_batch.py", "evaluation/test_launches_goals.py", "tests/test_cli.py", "methods/test_pyramidinfer.py"),
    *("papers/test_experiment_published.py", "end_to_end/test_experiments.py", "end_to_end/test_methods.py"),
    *(
        "end_to_end/test_niah.py",
        "runner/test_run.py",
        "evaluation/test_prompts.py",
        "methods/test_composition_parts.py",
    ),
    *("runner/test_run_interrupts.py", "evaluation/test_probes.py", "tables/test_run_table.py"),
    *("end_to_end/test_own_prompts.py", "evaluation/test_speed_rounds.py", "methods/test_full.py"),
    *("end_to_end/test_docs.py", "end_to_end/test_longbench.py", "utils/test_jsonl.py", "end_to_end/test_ruler.py"),
    *(
        "evaluation/test_prefill_passes_windows.py",
        "tables/test_paper.py",
        "runner/test_sweep.py",
        "figures/test_style.py",
    ),
    *("tables/test_command.py", "runner/test_calibrate.py", "runner/test_run_faults.py", "methods/test_by_head.py"),
    *("methods/test_kivi.py", "methods/test_spindle.py", "tables/test_make.py", "scripts/test_gpu_check.py"),
)
COLLECTED = pytest.StashKey[list[pytest.Item]]()


def pytest_configure(config):
    """Fixtures of models are for processes that run tests, not for the one of `--numprocesses` that divides them up."""
    config.pluginmanager.import_plugin("tests.support.needs")
    if hasattr(config, "workerinput") or not config.getoption("numprocesses", None):
        gc.disable()  # until all is collected: imports and tests make objects that stay
        config.pluginmanager.import_plugin("tests.support.fixtures")


def short_name(item: pytest.Item) -> str:
    return f"{item.path.parent.name}/{item.path.name}"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """Mark what is heavy, and start with the files that take longest, so that two processes end together."""
    for item in items:
        named = item.path.parent.name in HEAVY_FOLDERS or short_name(item) in HEAVY_FILES
        if named or HEAVY_FIXTURES & set(item.fixturenames):
            item.add_marker("heavy")
    heavy = Counter(item.path for item in items if item.get_closest_marker("heavy"))
    place = {name: number for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: (place.get(short_name(item), len(place)), -heavy[item.path]))
    config.stash[COLLECTED] = list(items)


def pytest_collection_finish(session):
    """What is imported and collected lives until the end: no garbage collection of a test's looks through it."""
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.fixture
def collected(request) -> list[pytest.Item]:
    """All tests that were collected, those that a marker or name left out too."""
    return request.config.stash[COLLECTED]


@pytest.fixture(autouse=True)
def errors_in_one_line(monkeypatch):
    """kvbench.cli.main sets HYDRA_FULL_ERROR for its process; those that later tests start must not inherit it."""
    monkeypatch.setenv("HYDRA_FULL_ERROR", "0")
