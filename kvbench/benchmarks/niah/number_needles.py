"""Needles: sentences that each contain a number, so that an answer can be scored digit by digit."""

import random
from dataclasses import dataclass

_CITIES = "Lisbon Oslo Nairobi Kyoto Quito Riga Hanoi Tunis Porto Bergen Lima Dakar Zagreb Cork Turin Perth".split()
MOST_NEEDLES = 9  # in one context, with different first digits


@dataclass(frozen=True)
class NumberNeedle:
    """A city's secret number of seven digits."""

    city: str
    number: str

    @property
    def text(self) -> str:
        return f"The secret number of {self.city} is {self.number}."

    @property
    def question(self) -> str:
        return f"What is the secret number of {self.city}? Answer with the number only."


def number_needle(seed: int) -> NumberNeedle:
    """The needle of a seed."""
    rng = random.Random(seed)
    return NumberNeedle(rng.choice(_CITIES), str(rng.randrange(10**6, 10**7)))


def number_needles(seed: int, count: int) -> list[NumberNeedle]:
    """Up to nine needles with different cities and first digits, so that another needle's number scores 0."""
    rng = random.Random(seed)
    cities, digits = rng.sample(_CITIES, count), rng.sample("123456789", count)
    return [
        NumberNeedle(city, digit + f"{rng.randrange(10**6):06}") for city, digit in zip(cities, digits, strict=True)
    ]
