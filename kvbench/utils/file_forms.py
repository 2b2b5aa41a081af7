"""The format of a file that should have one JSON object per line, for the error about its first row."""

import json
import re
from pathlib import Path

from kvbench.utils.regular_files import read_bytes

LARGEST = 2**28  # bytes of a file that is read as a whole to recognise its format
TABLES = {".csv": "a table with commas", ".tsv": "a table with tabs"}
MAGIC = {b"PAR1": "a Parquet file", b"PK\x03\x04": "a ZIP or Excel file", b"\x1f\x8b": "a compressed file"}
# Cells stay the texts that they are, "007" and "None" among them, but for the one field that takes a number; an empty
# one is left out.
_TABLE = (
    "python -c \"import collections, pandas; pandas.read_{kind}('{path}', dtype=collections.defaultdict(lambda: str, "
    "max_new_tokens='Int64'), keep_default_na=False, na_values=['']).to_json('{target}', orient='records', "
    'lines=True)"'
)
_ARRAY = (  # not by pandas, which makes numbers of texts
    "python -c \"import json; open('{target}', 'w').writelines(json.dumps(row) + '\\n' for row in "
    "json.load(open('{path}', encoding='utf-8-sig')))\""
)
CONVERTED = {"csv": _TABLE, "table": _TABLE, "json": _ARRAY}


def other_form(path: Path) -> str:
    """The file's format instead of one JSON object per line, and its conversion; "" if it is unknown."""
    try:
        data = read_bytes(path, LARGEST)
    except (OSError, ValueError):
        return ""
    form = next((name for magic, name in MAGIC.items() if data.startswith(magic)), "") or TABLES.get(path.suffix, "")
    kind = {".csv": "csv", ".tsv": "table"}.get(path.suffix, "")
    if not form:
        try:
            content = json.loads(data.decode("utf-8-sig"))
        except (ValueError, RecursionError):
            return ""
        if isinstance(content, list) and any(isinstance(row, dict) for row in content):
            form, kind = "one JSON array", "json"
        elif isinstance(content, dict) and b"\n" in data.strip():
            form = "one JSON object over several lines"
        else:
            return ""
    target = re.sub(r"\.\w+$", "", path.name) + ".jsonl"
    convert = CONVERTED[kind].format(kind=kind, path=path, target=path.with_name(target)) if kind else ""
    # a file is never converted into itself
    return f"{form}: {convert}" if convert and target != path.name else form
