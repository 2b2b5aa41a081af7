"""Boards: which submissions share one, and what of a submission keeps it from being read or ranked."""

import json
import shutil
from functools import cache

import pandas as pd
import pytest

from kvbench.configuration import Configuration, configured
from kvbench.errors import UserError
from kvbench.records.store import PACK, RECORDS, to_line
from kvbench.runner.leaderboard.boards import boards
from kvbench.runner.leaderboard.ranks import within
from kvbench.runner.leaderboard.submissions import read_submissions
from kvbench.runner.leaderboard.tables import leaders, ranked
from kvbench.runner.verify.verdict import Check, Verdict
from kvbench.utils.hashing import digest
from tests.support.made_runs import records_of, write_run

SCORES = {"full": 1.0, "snapkv": 0.9, "h2o": 0.1}


@cache
def configuration(*more: str) -> Configuration:
    return configured(["method=[full,snapkv,h2o]", "ratio=0.5", *more])


def hand_in(folder, *more, fields=None, manifest=None, **options):
    """A run's folder with a record for each of 12 samples and three settings."""
    cfg = configuration(*more)

    def score(setting, task, i):
        return SCORES[setting.name]

    times = {"prefill_seconds": 1 + int(digest(folder.name), 16) / 2**64}  # no two runs have the same
    made = records_of(cfg, score, samples=options.pop("samples", 12), **options, **times, **(fields or {}))
    return write_run(folder, cfg, made, **(manifest or {}))


def read(*folders):
    """The boards of made-up records, which no check would pass."""
    return boards(read_submissions(folders, unchecked).ranked)


def unchecked(folder):
    return [Check("scores", Verdict.PROVEN, "")]


def test_another_machine_and_commit_share_a_board_and_have_rows_of_their_own(tmp_path):
    hand_in(tmp_path / "one")
    hand_in(tmp_path / "two", manifest={"hardware": {"gpus": ["Another"]}, "git": "1" * 16, "kvbench": "0.3.0"})
    (board,) = read(tmp_path)
    assert len(board.settings) == 6 and board.settings["whole"].all()
    assert leaders(board, 0.5) == "SnapKV"
    best = ranked(board, 0.5)
    assert best["rank"].groupby(best["method"]).agg(list).to_dict() == {"full": [1, 1], "snapkv": [1, 1], "h2o": [5, 5]}


@pytest.mark.parametrize(
    "other, difference",
    [
        ({"manifest": {"data_sha256": "0" * 64}}, "data 0000000000"),
        ({"manifest": {"model": {"source": "hub", "revision": "f" * 16}}}, "weights"),
        ({"manifest": {"versions": {"settings": {}, "benchmark": {"needle": 7}}}}, "(version 7 of needle)"),
        ({"manifest": {"dtype": "torch.float16"}}, "float16"),
        ({"manifest": {"question": "hidden"}}, "question hidden"),
        ({"manifest": {"first_token": "compressed"}}, "question visible, first token compressed"),
        ({"more": ["benchmark.max_new_tokens=7"]}, "(max_new_tokens 7)"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_changes_the_question_or_the_score_is_kept_apart(other, difference, tmp_path):
    hand_in(tmp_path / "one")
    hand_in(tmp_path / "two", *other.get("more", ()), manifest=other.get("manifest"))
    made = read(tmp_path)
    assert len(made) == 2
    assert any(difference in board.facts for board in made)
    assert made[0].title != made[1].title


def test_other_versions_of_a_method_are_other_settings_of_a_board(tmp_path):
    hand_in(tmp_path / "one")
    hand_in(tmp_path / "two", fields={"parameters": '{"versions": {"Eviction": 2}}'})
    (board,) = read(tmp_path)
    labels = board.settings["label"].tolist()
    assert len(labels) == len(set(labels)) == 6
    assert any("versions.Eviction=2" in label for label in labels)


def test_a_setting_without_all_samples_is_shown_and_not_ranked(tmp_path):
    hand_in(tmp_path / "one", skip=lambda setting, task, i: setting.name == "snapkv" and i == 3)
    (board,) = read(tmp_path)
    assert board.settings.set_index("method")["whole"].to_dict() == {"full": True, "snapkv": False, "h2o": True}
    assert "snapkv" not in set(ranked(board, 0.5)["method"])


def test_samples_without_an_expected_answer_are_no_part_of_a_board(tmp_path):
    cfg = configuration()
    made = records_of(cfg, lambda setting, task, i: SCORES[setting.name], samples=3)
    first = made[0]["sample"]
    unscored = [record | {"scores": {} if record["sample"] == first else record["scores"]} for record in made]
    write_run(tmp_path / "one", cfg, unscored)
    (board,) = read(tmp_path)
    assert (board.measure, board.samples) == ("score", 2)
    assert board.settings.set_index("method")["score"].to_dict() == SCORES


def test_fullkvs_name_in_another_storage_is_another_method(tmp_path):
    hand_in(tmp_path / "one", "storage@method.full.storage=kivi")
    (board,) = read(tmp_path)
    assert ranked(board, 0.2).empty  # FullKV would be there whatever its bytes
    assert (
        sum(label.startswith("full (storage._target_=kvbench.methods.Kivi") for label in board.settings["label"]) == 1
    )


def test_without_an_interval_there_is_no_rank(tmp_path):
    hand_in(tmp_path / "one", samples=1)
    (board,) = read(tmp_path)
    assert ranked(board, 0.5)["rank"].isna().all()
    assert leaders(board, 0.5) == "–"


@pytest.mark.parametrize(
    "verdict, check, why",
    [(Verdict.WRONG, "times", "wrong times: a note"), (Verdict.UNPROVEN, "completeness", "not complete: a note")],
)
def test_what_is_wrong_or_not_complete_is_told_and_not_ranked(verdict, check, why, tmp_path):
    hand_in(tmp_path / "one")
    hand_in(tmp_path / "two")

    def judge(folder):
        return [Check(check, verdict if folder.path.name == "two" else Verdict.PROVEN, "", ("a note",))]

    ranked_ones, apart = read_submissions([tmp_path], judge)
    assert [one.name for one in ranked_ones] == ["one"]
    assert [(one.name, one.why) for one in apart] == [("two", why)]


def test_an_unproven_check_of_another_kind_keeps_no_rank(tmp_path):
    hand_in(tmp_path / "one")
    judged = read_submissions([tmp_path], lambda folder: [Check("model", Verdict.UNPROVEN, "", ("no weights",))])
    assert judged.ranked[0].verified == "1 unproven" and not judged.apart


def test_a_damaged_pack_does_not_keep_others_from_the_page(tmp_path):
    hand_in(tmp_path / "one")
    damaged = tmp_path / "two" / PACK
    damaged.parent.mkdir()
    damaged.write_bytes(b"PAR1 and no more")
    ranked_ones, apart = read_submissions([tmp_path], unchecked)
    assert [one.name for one in ranked_ones] == ["one"]
    assert [one.name for one in apart] == ["two"] and "is not a file of `kvbench pack`" in apart[0].why


def test_an_edited_record_is_told_by_verify_itself(tmp_path):
    hand_in(tmp_path / "one")
    folder = hand_in(tmp_path / "two")
    text = (folder / RECORDS).read_text()
    (folder / RECORDS).write_text(text.replace('"score": 0.1', '"score": 0.9', 1))
    apart = {one.name: one.why for one in read_submissions([tmp_path]).apart}
    assert "changed since written" in apart["two"] and "changed" not in apart["one"]


def test_the_records_of_another_one_are_told_though_their_keys_and_names_differ(tmp_path):
    hand_in(tmp_path / "one")
    records = [json.loads(line) for line in (tmp_path / "one" / RECORDS).read_text().splitlines()]
    copied = shutil.copytree(tmp_path / "one", tmp_path / "two")
    again = [{key: value for key, value in record.items() if key != "checksum"} for record in records]
    for record in again:
        record |= {"key": digest(record["key"]), "model": "another"}
    (copied / RECORDS).write_bytes(b"".join(map(to_line, again)))
    ranked_ones, apart = read_submissions([tmp_path], unchecked)
    assert [one.name for one in ranked_ones] == ["one"]
    assert apart[0].why == "36 records of 36 are those of 'one', with the same times"


@pytest.mark.parametrize(
    "text, message",
    [("by: [one]", "each with a text"), ("by: one\nurl: two", "unknown key"), ("- by", "each with a text")],
)
def test_a_mistake_in_submission_yaml_is_one_line(text, message, tmp_path):
    hand_in(tmp_path / "one")
    (tmp_path / "submission.yaml").write_text(text)
    with pytest.raises(UserError, match=message):
        read(tmp_path)


def test_the_nearest_note_counts_and_none_above_the_folder_that_is_named(tmp_path):
    hand_in(tmp_path / "all" / "one" / "run")
    hand_in(tmp_path / "all" / "two" / "run", fields={"decode_seconds": 0.25})
    (tmp_path / "submission.yaml").write_text("by: outside")
    (tmp_path / "all" / "two" / "submission.yaml").write_text("by: Someone\nnotes: a\n  note")
    found = {one.name: one.note for one in read_submissions([tmp_path / "all"], unchecked).ranked}
    assert found["one/run"].by == "" and (found["two/run"].by, found["two/run"].notes) == ("Someone", "a note")


def test_the_setting_with_the_most_bytes_stands_with_what_it_lacks():
    """An interval that it does not have was that of the method's next setting."""
    columns = ["method", "setting", "r_bytes", "low", "high"]
    rows = [("snapkv", "snapkv 0.1", 0.1, 0.2, 0.4), ("snapkv", "snapkv 0.2", 0.2, float("nan"), float("nan"))]
    (row,) = within(pd.DataFrame(rows, columns=columns), 0.2).itertuples()
    assert row.Index == "snapkv" and row.setting == "snapkv 0.2" and pd.isna(row.low) and pd.isna(row.rank)
