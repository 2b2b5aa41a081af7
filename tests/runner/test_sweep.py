"""Sweeps with -m: checked before they start, nothing outside the output folder, a failing job stops no other."""

import os
import re
import shutil
import weakref

import hydra
import pytest
import submitit  # noqa: F401 - it sets up logging, for which absl's handler closes a standard error that was replaced since
from hydra import initialize_config_dir

from kvbench.configuration.conf import CONF
from kvbench.runner import run as run_module
from kvbench.runner.jobs import let_go
from kvbench.runner.sweep import jobs
from tests.support.command import command_line
from tests.support.paths import ROOT
from tests.support.runs import arguments


def small(tiny_folder, *more: str) -> list[str]:
    return arguments(tiny_folder, "runs", "benchmark.depths=[50]", "method=[full,streaming_llm]", *more)


@pytest.mark.heavy
def test_each_job_is_announced_and_all_is_in_the_output_folder(sweep, tiny_folder, tmp_path):
    code, out, err = sweep(*small(tiny_folder, "ratio=0.2", "model.dtype=float32,bfloat16"))
    assert code == 0, err
    assert [line for line in err if line.startswith("job ")] == [
        "job 1 of 2: model.dtype=float32",
        "job 2 of 2: model.dtype=bfloat16",
    ]
    assert out.count("StreamingLLM") == 2  # a table each
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]
    folders = [path for path in (tmp_path / "runs").iterdir() if path.is_dir()]
    assert len(folders) == 2 and all((folder / "table.md").exists() for folder in folders)
    assert {path.name for path in (tmp_path / "runs").iterdir()} == {"multirun.yaml", *(f.name for f in folders)}


@pytest.mark.parametrize("own", [(), ("--config-dir", "mine")], ids=["", "with files of one's own"])
def test_a_key_that_each_swept_benchmark_has_needs_no_default_that_has_it(own, sweep, tmp_path):
    """It was an unknown key, and the keys of benchmark=niah were allowed."""
    (tmp_path / "mine").mkdir()
    benchmarks = ["benchmark=ruler_50,ruler", "benchmark.num_samples=1", "benchmark.tasks=[nothing]"]
    code, _, (line,) = sweep(*benchmarks, *own)
    assert code == 2 and "unknown task in benchmark.tasks 'nothing'" in line
    code, _, (line,) = sweep("benchmark=ruler,niah", "benchmark.num_samples=1", *own)
    assert code == 2 and "unknown key 'num_samples'" in line and "haystack_dir" in line  # of the second
    code, _, (line,) = sweep("benchmark=glob(ruler_5*)", "benchmark.num_samples=1", "benchmark.tasks=[nothing]", *own)
    assert code == 2 and "unknown task in benchmark.tasks 'nothing'" in line


@pytest.mark.heavy
def test_jobs_that_share_a_folder_are_told_that_a_list_is_better(sweep, tiny_folder, tmp_path):
    code, _, err = sweep(*small(tiny_folder, "ratio=0.2,0.4"))
    assert code == 0, err
    assert err[0].startswith(
        "2 jobs share 1 folder(s), and each prefills every prompt again; one list, such as 'ratio="
    )
    (table,) = tmp_path.glob("runs/*/table.md")
    assert "| 0.4 |" in table.read_text() and "| 0.2 |" in table.read_text()


@pytest.mark.parametrize(
    "mistake, told",
    [
        ("ratio=0.2,2", "ratio 2 is outside (0, 1]"),
        ("method=full,snapkw", "unknown method 'snapkw'. Did you mean 'snapkv'?"),
        ("benchmark.lengths=[320],[9000]", "takes 9006 tokens"),
        ("rato=0.2,0.4", "unknown key 'rato'. Did you mean 'ratio'?"),
        ("ratio=0.2,,0.4", "ratio=0.2,,0.4 cannot be read"),
        ("hydra.sweeper._target_=mine.Sweeper", "hydra.sweeper=Sweeper: -m makes a job for each combination of values"),
        ("hydra.launcher=slurm", "hydra.launcher=slurm: a launcher is chosen with a slash: hydra/launcher=slurm"),
        ("hydra.sweep.dir=null", "hydra.sweep.dir=null: field 'hydra.sweep.dir' is not Optional"),
        ("output_dir=/proc/x", "cannot write to /proc/x: No such file or directory"),
    ],
)
def test_a_mistake_in_one_job_is_one_line_before_anything_is_run(mistake, told, sweep, tiny_folder, tmp_path):
    key = mistake.partition("=")[0]
    others = [override for override in small(tiny_folder) if not override.startswith(f"{key}=")]
    code, out, err = sweep(*others, mistake)
    assert code == 2
    assert len(err) == 1 and told in err[0], err
    assert out == ""
    assert not list(tmp_path.glob("runs/*"))


@pytest.mark.heavy
def test_the_jobs_of_an_experiment_are_its_models(sweep, tmp_path):
    asked = ["+experiment=simlayerkv_table7", "limit=2"]
    with initialize_config_dir(str(CONF), version_base="1.3"):
        found = jobs(hydra.compose("config", asked, return_hydra_config=True))
    assert found == [[f"model={model}", *asked] for model in ("yi-1.5-9b", "qwen2.5-3b")]
    code, _, err = sweep("+experiment=simlayerkv_table7", "benchmark.tasks=[nonsense]", "output_dir=runs")
    assert code == 2
    assert len(err) == 1 and "nonsense" in err[0]
    assert not list(tmp_path.iterdir())


@pytest.mark.heavy
def test_a_job_that_fails_is_told_and_the_others_run(sweep, tiny_folder, tmp_path):
    broken = tmp_path / "broken"
    shutil.copytree(tiny_folder, broken)
    (broken / "model.safetensors").unlink()
    code, out, err = sweep(f"model.path={broken},{tiny_folder}", *small(tiny_folder, "ratio=0.2")[1:])
    assert code == 1
    assert err[-1].startswith(f"kvbench: job 1 of 2: model.path={broken} failed: ")
    assert any(line == f"job 2 of 2: model.path={tiny_folder}" for line in err)
    assert out.count("StreamingLLM") == 1
    assert not any("Traceback" in line or "Error executing job" in line for line in err)
    assert len(list(tmp_path.glob("runs/*/table.md"))) == 1


@pytest.mark.heavy
def test_an_error_of_ones_own_method_names_its_line_and_the_others_run(sweep, tiny_folder, tmp_path):
    failing = ["method._target_=tests.support.slow_method.Failing", "benchmark.lengths=[640],[320]", "ratio=0.2"]
    code, _, err = sweep(*small(tiny_folder, *failing))
    assert code == 1
    assert re.fullmatch(
        r"kvbench: job 1 of 2: benchmark\.lengths=\[640\] failed: "
        r"RuntimeError in slow_method\.py, line \d+: out of memory, as it were",
        err[-1],
    )
    assert not any("Traceback" in line for line in err)
    assert len(list(tmp_path.glob("runs/*/table.md"))) == 1


@pytest.mark.heavy
def test_an_error_of_ours_has_its_traceback(sweep, tiny_folder, monkeypatch):
    monkeypatch.setattr(run_module, "run_folder", {}.__getitem__)
    code, _, err = sweep(*small(tiny_folder, "ratio=0.2,0.4"))
    assert code == 1 and sum("Traceback" in line for line in err) == 2
    assert err[-1].startswith("kvbench: job 1 of 2: ratio=0.2 failed: ")


def test_a_failed_job_lets_go_of_what_its_frames_hold():
    class Model:
        pass

    there = []

    def job():
        model = Model()
        there.append(weakref.ref(model))
        try:
            raise RuntimeError("full")
        except RuntimeError as error:
            raise ValueError("told") from error

    with pytest.raises(ValueError) as failed:
        job()
    assert there[0]() is not None
    let_go(failed.value)
    assert there[0]() is None


@pytest.mark.parametrize("differing", ["ratio=0.2,0.4", "distance=true,false"])
def test_jobs_at_the_same_time_may_not_write_to_the_same_records(differing, sweep, tiny_folder, tmp_path):
    code, _, err = sweep("hydra/launcher=submitit_local", *small(tiny_folder, differing))
    assert code == 2
    assert len(err) == 1
    assert err[0].startswith("kvbench: jobs 1 and 2 of the sweep would write to the same records at the same time")
    assert not list(tmp_path.iterdir())


def test_slurm_where_there_is_none_is_one_line(sweep, tiny_folder, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    code, _, err = sweep("hydra/launcher=slurm", "shards=2", "shard=0,1", *small(tiny_folder))
    assert code == 2
    assert err == ["kvbench: this machine has no sbatch: run where jobs are submitted to Slurm"]


@pytest.mark.parametrize("launcher", ["hydra/launcher=slurm", "hydra.launcher.timeout_min=60"])
def test_a_launcher_without_a_sweep_runs_nothing_here(launcher, tmp_path, capsys):
    """It was ignored, and the run began where jobs are submitted."""
    assert command_line(launcher, "shards=8", "shard=0", f"output_dir={tmp_path}") == 2
    assert capsys.readouterr().err.startswith(f"kvbench: {launcher}: a launcher starts the jobs of a sweep")
    assert not list(tmp_path.iterdir())


@pytest.mark.heavy
def test_a_job_in_a_process_of_a_launcher_knows_the_folder_of_config_dir(sweep, tiny_folder, tmp_path, monkeypatch):
    """Its tables called the user's methods by other names, and what it told to paste lacked the folder."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT), prepend=os.pathsep)
    (tmp_path / "mine" / "method").mkdir(parents=True)
    text = (CONF / "method" / "streaming_llm.yaml").read_text().replace("method.streaming_llm", "method.mine")
    mine = text.replace('title: "StreamingLLM"', "title: My own")
    (tmp_path / "mine" / "method" / "mine.yaml").write_text(mine)
    code, _, err = sweep(
        "--config-dir", "mine", "hydra/launcher=submitit_local", *small(tiny_folder, "method=[full,mine]")
    )
    assert code == 0, err
    (table,) = tmp_path.glob("runs/*/table.md")
    assert "| My own |" in table.read_text()
    (log,) = tmp_path.rglob("*_log.out")
    assert f"--config-dir {tmp_path / 'mine'}" in log.read_text()
