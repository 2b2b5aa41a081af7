"""The configurations that a command line with +experiment=NAME stands for: one for each model of the item."""

from collections.abc import Sequence

from hydra import initialize_config_dir
from hydra.core.override_parser.overrides_parser import OverridesParser

from kvbench.config import CONF, composed, sweep_jobs
from kvbench.errors import UserError
from kvbench.evaluation.settings import Setting, build_settings
from kvbench.papers.experiment import Experiment, names


def configurations(overrides: Sequence[str]) -> list[dict]:
    """Resolved configurations; values swept by a comma are taken one by one, as `kvbench -m` does.

    Where no model is named, every model of the experiment is asked for. Raises UserError without an experiment.
    """
    found: list[dict] = []
    with initialize_config_dir(str(CONF), version_base="1.3"):
        for job in jobs(overrides):
            cfg = composed(job)
            experiment = Experiment.of(cfg)
            if experiment is None:
                raise UserError(f"name an experiment: +experiment=NAME. Allowed: {', '.join(names())}")
            named = any(override.startswith("model=") for override in job)
            for model in [cfg["model"]["name"]] if named else experiment.models:
                found.append(cfg if model == cfg["model"]["name"] else composed([*job, f"model={model}"]))
    return [cfg for i, cfg in enumerate(found) if cfg not in found[:i]]


def jobs(overrides: Sequence[str]) -> list[list[str]]:
    """The override lists of a sweep's jobs, without what concerns only how jobs are run."""
    parsed = OverridesParser.create().parse_overrides(list(overrides))
    return sweep_jobs([override.input_line for override in parsed if not _of_a_job(override.get_key_element())])


def _of_a_job(key: str) -> bool:
    return key in ("shard", "shards") or (key.startswith("hydra") and key != "hydra.searchpath")


def baseline() -> Setting:
    """FullKV as a run of its own would have it."""
    (setting,) = build_settings({"full": composed(["method=[full]"])["method"]["full"]}, None, None)
    return setting
