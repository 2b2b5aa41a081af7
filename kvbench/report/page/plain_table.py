"""A table whose cells are text, as the page's data."""

from collections.abc import Iterable
from typing import Any

from kvbench.configuration.conf import titled
from kvbench.report.tables.text_table import TextTable


def plain_table(table: TextTable, methods: Iterable[str]) -> dict[str, Any]:
    """Caption, header, rows and notes; `methods` has the method of each row."""
    return {
        "caption": table.title,
        "header": list(table.header),
        "rows": [
            {"method": method, "title": titled(method), "cells": cells}
            for method, cells in zip(methods, table.rows, strict=True)
        ],
        "notes": list(table.notes),
    }
