"""Short texts."""


def count(n: int, what: str) -> str:
    return f"{n:,} {what}" + ("" if n == 1 else "s")


def first_line(error: BaseException) -> str:
    """Where an error's message begins; its kind where it has none."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


def in_one_line(error: BaseException) -> str:
    """The whole of an error's message; its kind where it has none."""
    return " ".join(str(error).split()) or type(error).__name__
