"""Experiments against the published data: methods, models, columns, ratios and budgets."""

import pandas as pd
import pytest

from kvbench.configuration import Experiment
from kvbench.evaluation.settings import settings_of
from kvbench.papers.published import COLUMNS, items, published
from tests.support.experiments import NAMES, column_names, config

pytestmark = pytest.mark.heavy

# what a run does not measure: counted, or a benchmark of its own
NOT_MEASURED = {"pyramidkv_table2": {"memory_mb", "kv_share"}}


def data(name: str) -> tuple[Experiment, pd.DataFrame]:
    """An experiment and its published figures; of a figure whose numbers are in a table, its own models' rows."""
    experiment = config(name).experiment
    if experiment.published is None:
        return experiment, pd.DataFrame(columns=COLUMNS)
    figures = published(experiment.published)
    return experiment, figures[figures["model"].isin(experiment.models)]


def chosen_rows(figures: pd.DataFrame, where: dict[str, str]) -> pd.DataFrame:
    for column, value in where.items():
        figures = figures[figures[column] == value]
    return figures


def test_only_figures_what_has_no_number_and_what_no_paper_has_go_without_published_data():
    without = [name for name in NAMES if config(name).experiment.published is None]
    assert without and all("_fig" in name or name.startswith("community_") for name in without)


def test_all_published_tables_have_a_file_or_a_reason():
    left_out = {
        *("pyramidkv_table3", "spindlekv_table3"),  # data sets; hyper-parameters
        "pyramidkv_figure5",  # its one number is in Table 11 too, with all others
    }
    used = {config(name).experiment.published for name in NAMES} - {None}
    tables = {item for item in items() if not item.endswith("_text")}
    assert used <= tables | {"simlayerkv_text"}  # its throughput stands in the text
    assert tables - used <= left_out


@pytest.mark.parametrize("name", NAMES)
def test_methods_are_rows_of_the_published_data_and_all_of_them(name):
    experiment, figures = data(name)
    seen = figures.iloc[:0].index
    for method in config(name).methods:
        if method == "_target_" or experiment.rows(method) is None or experiment.published is None:
            continue
        found = chosen_rows(figures, experiment.rows(method))
        assert len(found), f"{method} is no row of {experiment.published}"
        seen = seen.union(found.index)
    assert set(figures["method"][~figures.index.isin(seen)]) == set()


@pytest.mark.parametrize("name", [name for name in NAMES if "_table" in name])
def test_models_and_columns_are_the_published_ones(name):
    experiment, figures = data(name)
    assert set(published(experiment.published)["model"]) == set(experiment.models)
    measured = [column for column in figures["column"].unique() if column not in NOT_MEASURED.get(name, ())]
    assert sorted(column_names(experiment)) == sorted(measured)


@pytest.mark.parametrize("name", NAMES)
def test_ratios_and_budgets_are_the_published_ones(name):
    experiment, figures = data(name)
    for model in experiment.models:
        of_model = figures[figures["model"] == model]
        requested = {}
        for setting in settings_of(config(name, model)):
            requested.setdefault(setting.name, set()).add(setting.budget or setting.ratio)
        for method, values in requested.items():
            where = experiment.rows(method)
            printed = chosen_rows(of_model, where)[["budget", "ratio"]] if where is not None else of_model.iloc[:0]
            printed = {*printed["budget"].dropna().astype(int), *printed["ratio"].dropna()} - {1.0}
            if not printed or values == {None}:  # the paper prints none, or they are outcomes of the method
                continue
            if "_table" in name:
                assert values == printed, method
            if experiment.show == "curve":  # of which the paper may print some points only
                assert values & printed, method
            else:
                assert values <= printed, method
