"""Methods by the names of their files, where a table or a figure has their titles."""

from functools import cache

from kvbench.configuration.conf import choices, titled


@cache
def names() -> list[tuple[str, str]]:
    """Titles with their names, the longest first: one title may begin another."""
    return sorted(((titled(name), name) for name in choices("method")), key=lambda pair: -len(pair[0]))


def untitled(label: str) -> str:
    """A label with the method's name in place of its title."""
    return next((name + label[len(title) :] for title, name in names() if label.startswith(title)), label)
