"""KVzip's score: the attention that a token receives while the model repeats the context."""

import json
from typing import ClassVar

from torch import Tensor

from kvbench.errors import UserError
from kvbench.methods.scoring.base import Scoring
from kvbench.prefill import LayerState, Needs, Reconstruction
from kvbench.prefill.reconstruction import REQUESTS, Requests
from kvbench.utils.checked import NonNegative, Positive, checked
from kvbench.utils.regular_files import read_text
from kvbench.utils.text import in_one_line


@checked
class KVzip(Scoring):
    """The largest attention of any query of a second pass, in which the model repeats the context (Kim et al. 2025,
    arXiv 2505.23416).

    Each chunk of the context is read again after the whole prompt. The score of a token in the chunk is its largest
    attention weight over these queries and the query heads of its group, in a softmax over the prefix, the chunk and
    the repeated tokens so far. The prefix (the head of the chat template) and the tokens after the context are always
    kept, whatever the budget. One second pass serves every ratio, and all hidden questions of a context.

    chunk           tokens that are read again at a time.
    lead            last tokens of the previous chunk, which end the request for every chunk except the first.
    sinks           first tokens that take the place of the prefix in a prompt without one.
    requests_file   JSON with the texts of the requests, {"first": …, "others": …}; its hash is in the record's key.
                    null: kvbench's own wording.
    """

    chunk: Positive = 2000
    lead: NonNegative = 8
    sinks: NonNegative = 4
    requests_file: str | None = None

    per_query_head = False
    second_pass: ClassVar[type[Reconstruction]] = Reconstruction

    def __post_init__(self) -> None:
        requests: Requests = REQUESTS if self.requests_file is None else read_requests(self.requests_file)
        self._how = self.second_pass(self.chunk, self.lead, self.sinks, requests)
        self.needs = Needs(reconstructions=frozenset([self._how]))

    def votes(self, layer: LayerState) -> Tensor:
        return layer.reconstruction[self._how].scores

    def least(self, layer: LayerState) -> int:
        return layer.reconstruction[self._how].outside


def read_requests(path: str) -> Requests:
    """The requests in a file. Raises UserError if the file cannot be read or does not have both requests."""
    try:
        texts = json.loads(read_text(path))
        requests = Requests(texts["first"], texts["others"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"requests_file={path} has no readable requests: {in_one_line(error)}") from None
    if not all(isinstance(text, str) for text in requests):
        raise UserError(f"requests_file={path}: both requests must be texts")
    return requests
