"""Read the tables of the four papers' text (Markdown extractions, cells parted by tabs), for check_published.py.

Headings and labels are looked up by their printed names; nothing here reads or writes the data they check.
"""

import re
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from kvbench.errors import UserError

Facts = dict[str, str]  # field of the data -> its value according to a printed name


def _names(field: str, printed: dict[str, str]) -> dict[str, Facts]:
    return {name: {field: value} for value, names in printed.items() for name in names.split(" | ")}


_TASKS = {
    "narrativeqa": "NrtvQA | NrrvQA | Na.QA | NarrativeQA",
    "qasper": "Qasper | Qasp",
    "multifieldqa_en": "MF-en | Mu.QA | MultiFieldQA-en",
    "multifieldqa_zh": "MF-zh",
    "hotpotqa": "HotpotQA | Ho.QA",
    "2wikimqa": "2WikiMQA | 2-WikiMQA | 2Wiki. | Wi.QA | 2WikiMultihopQA",
    "musique": "Musique | Musq | MuSiQue",
    "dureader": "DuReader",
    "gov_report": "GovReport | Gv.Rp",
    "qmsum": "QMSum | QMSm",
    "multi_news": "MultiNews | M.New | Multi-News",
    "vcsum": "VCSUM | VCSum",
    "trec": "TREC",
    "triviaqa": "TriviaQA | Tr.QA",
    "samsum": "SAMSum | SASm",
    "lsht": "LSHT",
    "passage_count": "PCount | PCnt | PassageCount",
    "passage_retrieval_en": "Pre | PRe | Pa.Rt | PassageRetrieval-en",
    "passage_retrieval_zh": "PRz | PR",
    "lcc": "Lcc | LCC | TCC",
    "repobench-p": "RB-P | RB.P | RepoBench-P",
    "average": "Avg. | AVG. | Average",
}

# The meaning of headings and labels by paper and field; "+" adds to the method of the line above.
_PRINTED: dict[str, dict[str, dict[str, str]]] = {
    "pyramidkv": {
        "column": _TASKS
        | {"memory_mb": "Memory", "kv_share": "Compression Ratio", "latency_s": "Inference Time"}
        | {"allocation_s": "Allocation Time", "selection_s": "Selection Time"},
        "setting": {"Avg len": "Avg len", "#data": "#data"},
        "model": {"mistral-7b-v0.2": "Mistral-7B", "llama3-8b": "LLaMa-3-8B", "llama3-70b": "LLaMa-3-70B"},
        "method": {
            "full": "FKV | Full | Full KV Acc.",
            "snapkv": "SKV | SnapKV | SnapKV Acc.",
            "h2o": "H2O | H2O Acc.",
            "streaming_llm": "SLM | StreamingLLM",
            "pyramidkv": "Ours | PyramidKV | PyramidKV Acc.",
        },
    },
    "spindlekv": {
        "column": _TASKS
        | {"beta": r"$\beta$", "alpha": r"$\alpha$"}
        | {"theta_k": r"Key Threshold ( $\theta_K$ )", "theta_v": r"Value Threshold ( $\theta_V$ )"},
        "model": {"llama3-8b": "LLaMA3-8b | LLaMA3-8B-Instruct", "mistral-7b-v0.2": "Mistral-7b | Mistral-7B"},
        "method": {
            "full": "FullKV",
            "h2o": "H2O",
            "snapkv": "SnapKV",
            "streaming_llm": "StreamingLLM",
            "pyramidinfer": "PyramidInfer",
            "pyramidkv": "PyramidKV",
            "spindle": "SpindleKV | SpindleKV with 40% Cache"
            " | w/. repeat | w/o. repeat | w/. reconstruct | w/o. reconstruct",
        },
    },
    "simlayerkv": {
        "column": _TASKS
        | {"layer_compression": "Layers", "kv_compression": "KV | Compress."}
        | {"niah_single": "S", "niah_multikey": "MK", "niah_multivalue": "MV", "niah_multiquery": "MQ"}
        | {"cwe": "CWE", "fwe": "FWE", "qa": "QA", "vt": "VT"},
        "method": {
            "full": "Full",
            "streaming_llm": "Str.",
            "snapkv": "SKV | SnapKV",
            "minicache": "Mini. | MiniCache",
            "simlayerkv_decode": "Ours | SLKV(ours) | SimLayerKV",
            "simlayerkv_snapkv": "SnapKV+SimlayerKV",
            "squeeze": "SqueezeAttention",
            "+_kivi4": "+Q. | + 4bit Q.",
        },
    },
    "pooling_merge": {
        "column": _TASKS,
        "method": {"full": "Full KV", "streaming_llm": "Streaming LLM", "h2o": "H2O", "pooling_merge": "Ours"},
    },
}
NAMES: dict[str, dict[str, Facts]] = {
    paper: {name: facts for field, printed in fields.items() for name, facts in _names(field, printed).items()}
    for paper, fields in _PRINTED.items()
}

# Parts of the lines between rows that name a model, some of them as the extraction split them.
_MODELS = {
    "2-7": "llama2-7b-chat",
    "70B": "llama3-70b",
    "3-8": "llama3-8b",
    "Qwen": "qwen2.5-3b",
    "Yi-9B": "yi-1.5-9b",
}
_MISTRAL = {"pyramidkv": "mistral-7b-v0.2", "simlayerkv": "mistral-7b-v0.3"}


@dataclass(frozen=True)
class Layout:
    """The layout of a table in the text."""

    labels: int = 1  # leading cells that name a line
    skip: int = 0  # cells before those, which span several lines
    after: bool = False  # the table stands below its caption
    values: tuple[int, ...] = ()  # indices of the remaining cells that are values; all if empty
    decimals: int = 0  # of an intact value: one with fewer was cut off
    heads: tuple[str, ...] = ()  # headings, where the text split them
    damaged: tuple[int, ...] = ()  # lines, counted from the first with values, that the extraction merged


_SIM = Layout(after=True, decimals=1)
LAYOUTS = {
    **{f"pyramidkv_table{n}": Layout() for n in (1, 2, 4, 5, 8, 9, 10)},
    "pyramidkv_table3": Layout(values=(1, 4)),
    "pyramidkv_table6": Layout(labels=2),
    "pyramidkv_table7": Layout(labels=2),
    "pyramidkv_table11": Layout(labels=3),
    **{f"spindlekv_table{n}": Layout(labels=2) for n in (1, 2, 6, 10, 11)},
    **{f"spindlekv_table{n}": Layout() for n in (3, 4, 5, 8, 9)},
    **{f"simlayerkv_table{n}": _SIM for n in (1, 9, 10, 11, 12)},
    "simlayerkv_table2": Layout(
        after=True,
        heads=tuple(f"{m} / {c}" for m in ("LLaMA2-7B", "LLaMA-3-8B", "Mistral-7B") for c in ("Layers", "KV")),
    ),
    "simlayerkv_table3": Layout(skip=1, after=True, heads=("S", "MK", "MV", "MQ", "CWE", "FWE", "QA", "VT", "Avg.")),
    "simlayerkv_table7": Layout(
        heads=tuple(f"{m} / {c}" for m in ("Yi-9B", "Qwen2.5-3B") for c in ("Full", "Str.", "SKV", "Ours")),
        damaged=(0, 13, 14, 15, 17),  # 0: a heading with a stray 5
    ),
    "simlayerkv_table8": Layout(after=True, decimals=1, damaged=(2, 3)),
    "pooling_merge_table2": Layout(),
}


@dataclass
class Line:
    """One printed line: its label, its values (None where illegible), and the facts that names around them state."""

    label: str
    values: list[str | None]
    cells: list[str]  # the values' cells, without mark-up and units
    facts: list[Facts]
    unnamed: list[str]  # label cells that are no known name: settings
    damaged: bool


def paper_text(folder: Path, paper: str) -> str:
    try:
        return (folder / f"{paper}.md").read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot read the text of {paper}: {error}") from error


def plain(text: str) -> str:
    """Running text without mark-up, times signs and line ends."""
    return " ".join(re.sub(r"\$|\\times|×|\*", "", text).split())


def read_table(text: str, item: str) -> list[Line]:
    """The lines of a table with values, in print order. Raises UserError where the table is not found."""
    paper, _, table = item.rpartition("_")
    layout, names = LAYOUTS[item], NAMES[paper]
    first, heads, above, block, method, lines = layout.skip + layout.labels, layout.heads, [], {}, "", []
    for row in _rows(text, item, int(table.removeprefix("table")), layout.after):
        labels, cells = row[layout.skip : first], row[first:]
        cells = [cells[i] for i in layout.values] if layout.values else cells
        label = " ".join(filter(None, labels))
        values = [value(cell, layout.decimals) for cell in cells]
        if sum(cell in names for cell in cells) > len(cells) / 3:
            heads = layout.heads or tuple(cell or higher for cell, higher in zip_longest(cells, above, fillvalue=""))
        elif any(value(word) for cell in cells for word in cell.split()) or "method" in names.get(label, {}):
            row_facts = {key: content for word in labels for key, content in names.get(word, {}).items()}
            if row_facts.get("method", "").startswith("+"):
                row_facts["method"] = method.removesuffix("_kivi4") + row_facts["method"][1:]
            method = row_facts.get("method", "")
            facts = [block | row_facts | _heading(paper, names, head) for head in heads or [""] * len(cells)]
            unnamed = [word for word in labels if word and word not in names]
            bare = [_bare(cell) for cell in cells]
            lines.append(Line(label, values, bare, facts, unnamed, damaged=len(lines) in layout.damaged))
        else:
            block = _block(paper, "".join(row)) or block
        above = cells
    return lines


def value(cell: str, decimals: int = 0) -> str | None:
    """The value in a cell as printed, without its unit; None where there is none, or only a part of one."""
    text = _bare(cell)
    return text if re.fullmatch(rf"[\d,]+(\.\d{{{max(decimals, 1)},}}){'' if decimals else '?'}", text) else None


def _bare(cell: str) -> str:
    text = re.sub(r"\$|\\times|imes|×|~|%|M$| token/s", "", cell).strip()
    return re.sub(r"^(\d+) (\d)$", r"\1.\2", text)  # the point was lost


def _rows(text: str, item: str, number: int, after: bool) -> list[list[str]]:
    """The cells of the table nearest to its caption."""
    lines = re.sub(r"</?[bi]>", "", text).split("\n")
    caption = next((i for i, line in enumerate(lines) if re.search(rf"Table {number}: [A-Z]", line)), None)
    if caption is None:
        raise UserError(f"no caption of {item} in the paper's text")
    step = 1 if after else -1
    near = range(caption + step, len(lines) if after else -1, step)
    start = next((i for i in near if "\t" in lines[i]), None)
    if start is None:
        raise UserError(f"no table beside the caption of {item}")
    end = start
    while 0 <= end < len(lines) and lines[end].strip():
        end += step
    block = lines[start:end] if after else lines[end + 1 : start + 1]
    return [line.split("\t") for line in block]


def _heading(paper: str, names: dict[str, Facts], head: str) -> Facts:
    return {k: v for word in head.split(" / ") for k, v in (names.get(word) or _block(paper, word)).items()}


def _block(paper: str, words: str) -> Facts:
    """The model and the size of the cache that a line between the rows names."""
    size = re.search(r"KV Size = (\w+)", words)
    model = next((name for part, name in _MODELS.items() if part in words), None)
    if "Mistr" in words:
        model = _MISTRAL.get(paper)
    return ({"model": model} if model else {}) | ({"setting": size[1]} if size else {})
