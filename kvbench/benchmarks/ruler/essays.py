"""The text that RULER hides needles in: essays as one run of words, or kvbench's generated haystack."""

import hashlib
import json
import re
from collections.abc import Callable, Iterator
from functools import cached_property
from itertools import cycle, islice
from pathlib import Path

from kvbench.benchmarks import haystack
from kvbench.errors import UserError
from kvbench.utils.extras import require
from kvbench.utils.files import visible
from kvbench.utils.links import held
from kvbench.utils.regular_files import read_text

_OFFICIAL = "PaulGrahamEssays.json"


class Essays:
    """The words of an endless haystack, and the first `size` of them split into sentences.

    `source` is a folder of .txt files in the order of their names, or RULER's PaulGrahamEssays.json or a folder
    with it; None: the text is generated. `splitter` is NLTK's punkt, as in the official generator, or `simple`: NLTK's
    rules without trained abbreviations, which need no data.
    """

    def __init__(self, source: str | None, splitter: str | None, seed: int):
        self.name = "generated" if source is None else "essay"
        self.splitter = splitter or ("simple" if source is None else "nltk")
        self._text = None if source is None else _read(source)
        self._split = _splitter(self.splitter)
        self._seed = seed
        self._sentences: dict[int, list[str]] = {}

    @cached_property
    def sha256(self) -> str:
        """SHA-256 of the haystack's text and splitter."""
        text = f"{haystack.generated.__name__} {self._seed}" if self._text is None else self._text
        return hashlib.sha256(f"{self.splitter}\n{text}".encode()).hexdigest()

    def sentences(self, size: int) -> list[str]:
        if size not in self._sentences:
            self._sentences[size] = self._split(" ".join(islice(self._words(), size)).strip())
        return self._sentences[size]

    def _words(self) -> Iterator[str]:
        if self._text is None:
            for sentence in haystack.generated(self._seed):
                yield from sentence.split()
        else:
            yield from cycle(re.sub(r"\s+", " ", self._text).split(" "))


def _read(source: str) -> str:
    path = Path(source)
    if (path / _OFFICIAL).is_file():
        path = held(path / _OFFICIAL, path)
    try:
        if path.is_file():
            text = json.loads(read_text(path))["text"]
        else:
            text = "".join(read_text(held(file, path)) for file in visible(path, "*.txt"))
        if text.strip():
            return text
    except UserError:
        raise
    except UnicodeDecodeError as error:
        raise UserError(f"benchmark.essays_dir={source!r} holds a text that is not UTF-8: {error}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{path} is not RULER's {_OFFICIAL}: an object with a text under 'text'") from error
    raise UserError(f"benchmark.essays_dir={source!r} is neither a folder with .txt files nor {_OFFICIAL}")


def _splitter(name: str) -> Callable[[str], list[str]]:
    require("benchmark.essays_dir", "nltk")
    import nltk  # imported here because it is slow and only essays need it

    if name == "simple":
        return nltk.tokenize.PunktSentenceTokenizer().tokenize
    try:
        nltk.data.find("tokenizers/punkt_tab")
    except LookupError as error:
        raise UserError(
            "the essays are split into sentences by NLTK's punkt, whose data is not installed: "
            "python -m nltk.downloader punkt_tab, or benchmark.sentences=simple for a split without trained "
            "abbreviations (samples then differ from the official ones)"
        ) from error
    return nltk.sent_tokenize
