"""kvbench verify --rerun: forged answers whose folder agrees with itself, honest folders of other machines, reasons."""

import os
import subprocess
import sys
from dataclasses import replace

import pytest
from transformers import AutoTokenizer

from kvbench.records.manifest import read_manifests
from kvbench.runner.verify import checks
from kvbench.runner.verify import rerun as rerun_module
from kvbench.runner.verify.folder import read
from kvbench.runner.verify.materials import materials
from kvbench.runner.verify.rerun import made_again
from kvbench.runner.verify.rerun_draw import Draw
from kvbench.runner.verify.verdict import Verdict
from kvbench.utils.regular_files import read_bytes
from tests.support.forged import Forged
from tests.support.forgeries_answers import UNSEEN, right_answers
from tests.support.paths import ROOT
from tests.support.runs import arguments, run

pytestmark = pytest.mark.heavy
PLAIN = {"ATEN_CPU_CAPABILITY": "default", "MKL_CBWR": "COMPATIBLE", "ONEDNN_MAX_CPU_ISA": "SSE41"}


@pytest.fixture(scope="module")
def honest(tiny_folder, tmp_path_factory):
    """Ten needles under FullKV and two methods at two ratios, with distances."""
    depths = ",".join(map(str, range(0, 100, 10)))
    more = ["method=[full,snapkv,pyramidkv]", f"benchmark.depths=[{depths}]", "benchmark.max_new_tokens=10"]
    return run(*arguments(tiny_folder, tmp_path_factory.mktemp("honest"), *more, "distance=true"))


@pytest.fixture(scope="module")
def places(tiny_folder):
    return {"model.path": str(tiny_folder)}


@pytest.fixture(scope="module")
def here(honest, places):
    return materials(next(iter(read_manifests(honest)[0].values())), places)


@pytest.fixture
def forged(honest, tiny_folder, tmp_path):
    return Forged(honest, tmp_path / "run", AutoTokenizer.from_pretrained(tiny_folder))


def rerun(folder, here, places, count=3, nonce="n"):
    return made_again(read(folder), here, places, Draw(count, nonce))


def test_an_honest_folder_is_proven_by_the_answers_made_again(honest, here, places):
    check = rerun(honest, here, places)
    assert check.verdict is Verdict.PROVEN and check.again == 15
    assert "--nonce n" in check.about and "15 of 15 answers" in check.notes[0]


def test_while_answers_are_made_again_only_the_places_of_the_command_line_are_read(
    honest, here, places, tmp_path, monkeypatch
):
    (tmp_path / "private.txt").write_text("nobody else's")
    made = rerun_module.answers

    def answers(*args):
        read_bytes(tmp_path / "private.txt")  # as a value would that nobody has thought of
        return made(*args)

    monkeypatch.setattr(rerun_module, "answers", answers)
    check = rerun(honest, here, places)
    assert check.verdict is Verdict.UNPROVEN and "no file that others may name" in check.notes[0]


def test_sixty_per_cent_of_right_answers_forged_pass_all_other_checks_and_are_found_where_one_is_drawn(
    forged, here, places
):
    names = sorted({record["sample"] for record in forged.records})
    false = {*names[:6]}
    right_answers(forged, samples=false)
    folder = forged.seal()
    without = {check.name: check.verdict for check in checks.verify(folder, places)}
    assert Verdict.WRONG not in without.values() and without["answers"] is Verdict.PROVEN
    assert without["scores"] is Verdict.UNPROVEN  # the run's distances alone
    draws = [Draw(3, f"nonce {number}") for number in range(400)]
    records = read(folder).methods
    hit = [not false.isdisjoint(draw.samples(records)) for draw in draws]
    # 1 - C(4, 3) / C(10, 3) = 96.7 %, less four standard deviations: draws depend on the random ids of runs
    assert sum(hit) / len(draws) >= 0.93
    missed = hit.index(False)
    for number in (0, 1, 2, 3, missed):
        check = made_again(read(folder), here, places, draws[number])
        assert (check.verdict is Verdict.WRONG) == hit[number], check


@pytest.mark.parametrize("name", UNSEEN)
def test_what_a_folder_alone_cannot_give_away_is_found_by_answers_made_again_as_docs_say(name, forged, here, places):
    forge, found = UNSEEN[name]
    forge(forged)
    check, *others = reversed(checks.verify(forged.seal(), places, Draw(1, "n")))
    assert Verdict.WRONG not in {other.verdict for other in others}
    assert check.verdict is (Verdict.WRONG if found else Verdict.PROVEN), check


@pytest.mark.parametrize(
    "edit",
    [
        lambda record: record.update(prompt_tokens=record["prompt_tokens"] - 1),
        lambda record: record.update(stored_bytes=record["stored_bytes"] - 64),
        lambda record: record.update(kept_per_layer=[kept - 1 for kept in record["kept_per_layer"]]),
        lambda record: record.update(full_cache_tokens=0),
        lambda record: record.update(decode_bytes_end=record["decode_bytes_end"] - 64),
        lambda record: record.update(tokens=record["tokens"][:-1], close_call=0),
        lambda record: record.update(tokens=None),
        lambda record: record.update(r=record["r"] - 0.001),
    ],
    ids=[
        "prompt_tokens",
        "stored_bytes",
        "kept_per_layer",
        "full_cache_tokens",
        "decode_bytes_end",
        "tokens",
        "none",
        "r",
    ],
)
def test_edited_numbers_are_found(edit, forged, here, places):
    for record in forged.of("snapkv 0.2"):
        edit(record)
    check = rerun(forged.seal(), here, places, 1)
    assert check.verdict is Verdict.WRONG and check.again == 5


@pytest.mark.parametrize(
    ("edit", "reason"),
    [
        (lambda one: one.update(kvbench="0.1.9"), "kvbench 0.1.9"),
        (lambda one: one.update(dtype="torch.int4"), "torch.int4"),
        (lambda one: one.update(device="tpu"), "tpu"),
        (lambda one: one["model"]["files"].update({"model.safetensors": "00"}), "files here are others"),
        (lambda one: one["config"]["model"].update(load_args={"attn_implementation": "a/b"}), "load_args"),
        (lambda one: one["config"]["model"].update(random={"model_type": "llama"}), "random"),
        (lambda one: one["config"]["decode"].update(batch="many"), "decode.batch"),
        (lambda one: one["config"].update(memory="none"), "memory"),
        (lambda one: one["config"].update(prefill={"chunk": True}), "prefill.chunk=True must be an integer"),
        (lambda one: one["versions"]["benchmark"].update(needle=7), "versions"),
        (lambda one: one["config"].update(decode="x"), "AttributeError"),
        (lambda one: one["config"]["method"]["snapkv"].update(_target_="os.system"), "os.system"),
    ],
)
def test_what_is_not_here_is_unproven_for_one_reason(edit, reason, forged, here, places):
    edit(forged.manifest)
    check = rerun(forged.seal(keys=False), here, places)
    assert check.verdict is Verdict.UNPROVEN and check.again == 0 and len(check.notes) == 1
    assert reason in check.notes[0]


def test_settings_of_two_runs_with_one_label_are_kept_apart(tiny_folder, tmp_path, places):
    common = arguments(tiny_folder, tmp_path, "method=snapkv", "ratio=0.2", "benchmark.depths=[50]")
    folders = [run(*common), run(*common, "method.snapkv.scoring.kernel=1", "method.snapkv.scoring.window=8")]
    assert folders[0] == folders[1]
    (check,) = [one for one in checks.verify(folders[0], places, Draw(1)) if one.name == "rerun"]
    assert check.verdict is Verdict.PROVEN and check.again == 2


def test_samples_that_are_not_here_are_unproven(honest, here, places):
    check = rerun(honest, replace(here, samples=None, missing=("its samples: gone",)), places)
    assert check.verdict is Verdict.UNPROVEN and check.notes == ("its samples: gone",)


def test_a_folder_of_probes_is_not_made_again(tiny_folder, tmp_path, places):
    given = (f"model.path={tiny_folder}", "model.shape=null", "model.max_length=4096", f"output_dir={tmp_path}")
    folder = run(*given, "benchmark.lengths=[320]", "benchmark.depths=[50]", "probe=lazy_mass")
    (check,) = [one for one in checks.verify(folder, places, Draw(1)) if one.name == "rerun"]
    assert check.verdict is Verdict.UNPROVEN and "probes" in check.notes[0]


@pytest.mark.slow
def test_another_machines_rounding_makes_nothing_wrong(tiny_folder, tmp_path):
    """Methods that rank, code, merge and read pages, in bfloat16: the folder is verified with other kernels."""
    methods = "full,snapkv,knorm,adakv,fp8_token,spindle,tova,quest"
    more = [f"method=[{methods}]", "ratio=0.2", "benchmark.depths=[50]", "benchmark.max_new_tokens=12"]
    folder = run(*arguments(tiny_folder, tmp_path, *more, "model.dtype=bfloat16"))
    command = [sys.executable, "-m", "kvbench", "verify", str(folder), f"model.path={tiny_folder}", "--rerun", "1"]
    environment = os.environ | PLAIN
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
    (line,) = (line for line in done.stdout.splitlines() if " rerun " in line)
    assert "wrong" not in line, done.stdout
    assert "8 answers of the folder made again here" in done.stdout
