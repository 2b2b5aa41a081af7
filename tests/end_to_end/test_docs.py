"""The documentation names what is there, and points at nothing that is not."""

import inspect
import pkgutil
import re
import sys
from dataclasses import fields

import pytest

from kvbench.benchmarks import Sample
from kvbench.configuration.conf import CONF
from kvbench.records import load
from kvbench.utils.other_words import WORDS
from scripts.maintenance import make_methods_doc
from tests.support.command import command_line
from tests.support.paths import ROOT

GUIDES = ["adding-a-method", "adding-a-benchmark", "plug-ins", "integrations"]
PAGES = [
    ROOT / "README.md",
    ROOT / "CHANGELOG.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "scripts" / "README.md",
    *(ROOT / "docs").glob("*.md"),
]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if not target.startswith(("http://", "https://", "#")):
            assert (page.parent / target.partition("#")[0]).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_name_of_a_file_is_in_that_file(page):
    """The guide to benchmarks named a set of `kvbench/benchmarks/base.py` that is elsewhere."""
    text = page.read_text(encoding="utf-8")
    for name, file in re.findall(r"`(\w+)` (?:of |in |from )?\(?`((?:kvbench|tests)/[\w./]+\.py)`", text):
        assert re.search(rf"\b{name}\b", (ROOT / file).read_text(encoding="utf-8")), f"{file} has no {name}"


def test_every_method_and_benchmark_is_told_of():
    methods = (ROOT / "docs" / "methods.md").read_text(encoding="utf-8")
    benchmarks = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    missing = [path.stem for path in (CONF / "method").glob("*.yaml") if f"`{path.stem}`" not in methods]
    named = {*re.findall(r"benchmark=(\w+)", benchmarks)}  # or in the first column of a table
    named.update(*(re.findall(r"`(\w+)`", cell) for cell in re.findall(r"^\| ([^|]*)", benchmarks, re.MULTILINE)))
    missing += [path.stem for path in (CONF / "benchmark").glob("*.yaml") if path.stem not in named]
    assert not missing


def test_the_table_of_methods_is_made_from_their_files():
    text = make_methods_doc.DOC.read_text(encoding="utf-8")
    assert make_methods_doc.document(text) == text, "run python -m scripts.maintenance.make_methods_doc"
    shown = [name for section in make_methods_doc.sections(text) for name in section.classes]
    assert len(shown) == len(set(shown)) and set(shown) <= set(make_methods_doc.classes())


@pytest.mark.parametrize("name", ["my_method.py", "my_decoding.py"])
def test_the_methods_of_the_guide_are_those_that_are_tested(name):
    code = (ROOT / "tests" / "support" / name).read_text(encoding="utf-8")
    guide = (ROOT / "docs" / "adding-a-method.md").read_text(encoding="utf-8")
    assert re.search(rf"^```python\n# {re.escape(name)}.*\n{re.escape(code)}```$", guide, re.MULTILINE)


def test_the_readme_opens_with_the_two_commands_and_has_the_demos_table():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    first = readme.partition("\n\n    ")[2].partition("\n\n")[0]
    assert [line.split("#")[0].strip() for line in first.splitlines()] == ["make demo", "make test"]
    assert len(readme.splitlines()) <= 120
    made = (ROOT / "results" / "smollm2" / "demo" / "table.md").read_text(encoding="utf-8")
    (table,) = re.findall(r"\n\n(\| method \|.*?\n)\n", made, re.DOTALL)
    assert table.count("\n") == 11 and f"\n\n{table}\n" in readme


def test_each_key_of_another_tool_has_its_word_here():
    """The page promises it of the error of a mistyped key; two keys of its own tables were unknown."""
    page = (ROOT / "docs" / "coming-from.md").read_text(encoding="utf-8")
    first = " ".join(re.findall(r"^\| (`.*?) \|", page, re.MULTILINE))
    keys = {*re.findall(r"(\w+)=", first), *re.findall(r"--(\w+)", first)}
    assert keys > {"compression_ratio", "max_capacity_prompts_ratio", "gen_kwargs"}
    assert keys - {*WORDS} == {"method", "model", "limit"}  # kvbench's own keys


# --- the file tree of CONTRIBUTING.md


def tree() -> dict[str, str]:
    """The entries of the package in the annotated tree, each with what is said of it."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    package = re.search(r"^kvbench/\n((?:  .*\n)+)", text, re.MULTILINE)[1]
    return {name.rstrip("/"): about for name, about in re.findall(r"^  (\S+) +(.+)$", package, re.MULTILINE)}


def test_the_tree_has_every_entry_of_the_package_and_no_other():
    entries = {path.name for path in (ROOT / "kvbench").iterdir() if path.name not in ("__init__.py", "__pycache__")}
    assert set(tree()) == entries
    assert all(tree().values())


def test_modules_that_the_tree_names_are_there():
    named = {
        (entry, name)
        for entry, about in tree().items()
        for name in re.findall(r"\b[a-z_]+\b", about.partition("folder: ")[2])
    }
    assert named >= {("runner", "request"), ("runner", "outputs")}
    assert all((ROOT / "kvbench" / entry / f"{name}.py").exists() for entry, name in named)


# --- a benchmark of one's own, as docs/adding-a-benchmark.md has it


@pytest.fixture
def my_benchmark(tmp_path, monkeypatch):
    """The guide's two blocks of code as files; the folder for --config-dir."""
    guide = (ROOT / "docs" / "adding-a-benchmark.md").read_text(encoding="utf-8")
    module, node = re.findall(r"```(?:python|yaml)\n(.*?)```", guide, re.DOTALL)[:2]
    (tmp_path / "my_benchmark.py").write_text(module, encoding="utf-8")
    (tmp_path / "benchmark").mkdir()
    (tmp_path / "benchmark" / "code_in_line.yaml").write_text(node, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    return tmp_path


def test_the_benchmark_of_the_guide_runs_and_is_short(my_benchmark, tiny_folder, capsys):
    small = ["benchmark=code_in_line", "benchmark.lines=20", "limit=2", "method=[full,snapkv]", "ratio=0.5"]
    model = [f"model.path={tiny_folder}", "model.shape=null", "model.max_length=4096"]
    assert command_line("--config-dir", my_benchmark, *small, *model) == 0, capsys.readouterr().err
    records = load(my_benchmark / "runs")
    assert len(records) == 4 and set(records["benchmark"]) == {"code_in_line"}
    assert all({*scores} == {"exact"} for scores in records["scores"]) and records["line"].notna().all()
    body = (my_benchmark / "my_benchmark.py").read_text().partition("@checked")[2]
    assert len([line for line in body.splitlines() if line.strip()]) <= 25


def test_a_mistake_in_its_keys_is_one_line(my_benchmark, capsys):
    assert command_line("--config-dir", my_benchmark, "benchmark=code_in_line", "benchmark.lines=0") == 2
    assert "benchmark.lines=0 must be an integer of at least 1" in capsys.readouterr().err


@pytest.mark.parametrize(
    "line", ['    metrics = ("exact",)\n', '    name: str = "code_in_line"\n'], ids=["metrics", "name"]
)
def test_a_benchmark_without_name_or_metrics_is_one_line(line, my_benchmark, capsys):
    file = my_benchmark / "my_benchmark.py"
    text = file.read_text(encoding="utf-8")
    assert line in text
    file.write_text(text.replace(line, ""), encoding="utf-8")
    sys.modules.pop("my_benchmark", None)
    assert command_line("--config-dir", my_benchmark, "benchmark=code_in_line") == 2
    lacking = "metrics" if "metrics" in line else "name"
    expected = f"kvbench: benchmark: CodeInLine lacks {lacking}, which docs/adding-a-benchmark.md describes\n"
    assert capsys.readouterr().err == expected


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('packages = ("no_such_module",)', "benchmark code_in_line needs no_such_module, which is not installed\n"),
        ('scored_by = ("rulr",)', "unknown file of metrics in scored_by 'rulr'. Did you mean 'ruler'? Allowed: "),
    ],
    ids=["packages", "scored_by"],
)
def test_what_kvbench_does_not_know_of_a_benchmarks_scores_is_one_line(line, message, my_benchmark, capsys):
    """Both were tracebacks of a KeyError."""
    file = my_benchmark / "my_benchmark.py"
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace("    metrics =", f"    {line}\n    metrics ="), encoding="utf-8")
    sys.modules.pop("my_benchmark", None)
    assert command_line("--config-dir", my_benchmark, "benchmark=code_in_line") == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "written", "message"),
    [
        ('name: str = "code_in_line"', "name: str = None", "CodeInLine.name=None must be a text that is not empty"),
        ('metrics = ("exact",)', 'metrics = "exact"', "metrics='exact' must be a tuple of texts, of one as (text,)"),
        ("return 16 * self.lines", 'return "16"  #', "longest='16' must be an integer, or None if not known"),
    ],
    ids=["name", "metrics", "longest"],
)
def test_what_a_benchmark_says_of_itself_in_another_type_is_one_line(line, written, message, my_benchmark, capsys):
    """Two were tracebacks, and the letters of a text were taken for metrics."""
    file = my_benchmark / "my_benchmark.py"
    text = file.read_text(encoding="utf-8")
    assert line in text
    file.write_text(text.replace(line, written), encoding="utf-8")
    sys.modules.pop("my_benchmark", None)
    assert command_line("--config-dir", my_benchmark, "benchmark=code_in_line") == 2
    assert message in capsys.readouterr().err


def members() -> list[tuple[str, object]]:
    """What docs/api.md lists, and the public functions and properties that it defines, each by its place."""
    text = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    found = []
    for place in re.findall(r"^:+ (kvbench\S+)$", text, re.MULTILINE):
        thing = pkgutil.resolve_name(place)
        module = place if inspect.ismodule(thing) else thing.__module__
        found.append((place, thing))
        for name, member in vars(thing).items() if inspect.ismodule(thing) or inspect.isclass(thing) else ():
            defined = getattr(member, "__module__", module) == module
            if not name.startswith("_") and defined and (callable(member) or isinstance(member, property)):
                found.append((f"{place}.{name}", member))
    return found


def test_the_reference_has_what_the_guides_import():
    """It lists what does not change without notice: `Eviction` and others that the guides begin with were missing."""
    guides = [(ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8") for name in GUIDES]
    imported = [
        f"{module}.{name.strip()}"
        for module, names in re.findall(r"^from (kvbench\S*) import (.+)$", "\n".join(guides), re.MULTILINE)
        for name in names.partition("#")[0].split(",")
    ]
    (listed,) = re.findall(r"from `kvbench.methods`: the base classes above,(.*?)\n\n", guides[0], re.DOTALL)
    imported += [f"kvbench.methods.{name}" for name in re.findall(r"`(\w+)`", listed)]
    elsewhere = re.findall(r"`(kvbench\.\S+)`\]", (ROOT / "docs" / "api.md").read_text(encoding="utf-8"))
    reference = [thing for _, thing in members()] + [pkgutil.resolve_name(name) for name in elsewhere]
    types = {"kvbench.utils.checked.Positive"}  # annotations
    missing = [name for name in imported if name not in types and pkgutil.resolve_name(name) not in reference]
    assert len(imported) > 20 and not missing


def test_everything_of_the_reference_has_a_docstring_whose_parameters_exist():
    for place, member in members():
        assert inspect.getdoc(member), f"{place} has no docstring"
        if not inspect.isclass(member) or issubclass(member, Exception):  # Python tells no signature of an exception
            continue
        listed = re.findall(r"^(\w+) {2,}\S", inspect.getdoc(member), re.MULTILINE)
        known = {*inspect.signature(member).parameters, *dir(member)}
        assert {*listed} <= known, f"{place} describes {sorted({*listed} - known)}, which it does not take"


def test_every_field_of_a_sample_is_described_in_the_reference_and_in_the_guide():
    names = [one.name for one in fields(Sample)]
    assert re.findall(r"^(\w+) {2,}\S", inspect.getdoc(Sample), re.MULTILINE) == names
    guide = (ROOT / "docs" / "adding-a-benchmark.md").read_text(encoding="utf-8")
    rows = guide.partition("has more than its prompt and answers")[2].partition("Two methods are optional")[0]
    described = {*re.findall(r"`(\w+)[=`]", rows)}
    assert {*names} - described <= {"id", "prompt", "answers"}
