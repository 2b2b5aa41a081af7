"""Keys that name a place on this machine: of a benchmark's data, and of a method's file; a hash identifies each."""

PLACES = frozenset(
    "data_dir haystack_dir needle_file essays_dir squad hotpotqa english_words prompts_file path".split()
)

PUBLISHED = "published"  # in place of a path: the data that a package publishes


def names_file(key: str) -> bool:
    """Whether a method's parameter is a file, of which records have the hash."""
    return key.endswith("_file")


def is_place(key: str) -> bool:
    """Whether a key names a place on this machine."""
    return key in PLACES or names_file(key)
