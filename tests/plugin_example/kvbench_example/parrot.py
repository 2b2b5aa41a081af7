"""An engine: it answers with the end of the question, which costs nothing and shows how far scores are from chance."""

from contextlib import contextmanager
from dataclasses import field
from typing import Any

from kvbench.engines import Completion, Engine, Session
from kvbench.utils.checked import Positive, checked


class Talking(Session):
    def __init__(self, characters):
        self.characters = characters

    def complete(self, question, top):
        return Completion(question.text[-self.characters :], prompt_tokens=len(question.ids))


@checked(prefix="engine.")
class Parrot(Engine):
    characters: Positive = 40
    label: str | None = None
    about: dict[str, Any] = field(init=False, default_factory=dict)

    def __post_init__(self):
        self.label = self.label or f"parrot {self.characters}"

    @property
    def parameters(self):
        return {"engine": "parrot", "characters": self.characters}

    def connect(self, reader):
        self.about = {"version": "1"}

    @contextmanager
    def session(self):
        yield Talking(self.characters)
