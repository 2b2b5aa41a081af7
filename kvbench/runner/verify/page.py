"""The page of a folder's checks: on the terminal, as Markdown and as HTML."""

from collections.abc import Sequence
from html import escape
from pathlib import Path

from kvbench.report.page.still import bullets, document, table
from kvbench.report.tables.text_table import as_text, markdown_cell
from kvbench.runner.verify.verdict import Check, Verdict
from kvbench.utils.text import count

MEANINGS = {
    Verdict.PROVEN: "recomputed here",
    Verdict.PLAUSIBLE: "the folder agrees with itself and with what is possible",
    Verdict.UNPROVEN: "something that the check needs is not here",
    Verdict.WRONG: "a contradiction, or something impossible",
}


def verdict_of(checks: Sequence[Check]) -> str:
    """The number of checks with each verdict, in one line."""
    counts = [(sum(check.verdict is verdict for check in checks), verdict) for verdict in Verdict]
    return ", ".join(f"{count} {verdict}" for count, verdict in counts if count)


def again(checks: Sequence[Check]) -> str:
    """The number of answers that were made again here, in one sentence."""
    answers = sum(check.again for check in checks)
    if answers:
        return f"{count(answers, 'answer')} of the folder made again here"
    return "no answer was made again here: what is proven follows from the folder's own tokens (verify --rerun K)"


def text(folder: Path, checks: Sequence[Check]) -> str:
    width = max(len(check.name) for check in checks)
    lines = [str(folder)]
    for check in checks:
        lines.append(f"  {check.verdict:<9}  {check.name:<{width}}  {check.about}")
        lines += [f"  {'':<9}  {'':<{width}}  {note}" for note in check.notes]
    return "\n".join([*lines, f"  {verdict_of(checks)}; {again(checks)}"])


def markdown(pages: Sequence[tuple[Path, Sequence[Check]]]) -> str:
    lines = ["# Verification", ""]
    for folder, checks in pages:
        lines += [f"## {markdown_cell(as_text(folder.name))}", "", f"{verdict_of(checks)}; {again(checks)}.", ""]
        lines += ["| verdict | check | what | notes |", "| :-- | :-- | :-- | :-- |"]
        for check in checks:
            notes = markdown_cell(as_text("; ".join(check.notes)))
            lines.append(f"| {check.verdict} | {check.name} | {check.about} | {notes} |")
        lines.append("")
    return "\n".join([*lines, *(f"- {verdict}: {meaning}" for verdict, meaning in MEANINGS.items()), ""])


def html(pages: Sequence[tuple[Path, Sequence[Check]]]) -> str:
    parts = []
    for folder, checks in pages:
        rows = [
            [
                f'<span class="{check.verdict}">{check.verdict}</span>',
                check.name,
                escape(check.about),
                "<br>".join(map(escape, check.notes)),
            ]
            for check in checks
        ]
        parts += [f"<h2>{escape(folder.name)}</h2>", f"<p>{verdict_of(checks)}; {again(checks)}.</p>"]
        parts.append(table(["verdict", "check", "what", "notes"], rows))
    meanings = bullets([f"{verdict}: {meaning}" for verdict, meaning in MEANINGS.items()])
    return document("Verification", [*parts, "<h2>Verdicts</h2>", meanings])
