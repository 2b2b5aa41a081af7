"""Keys that name a place on this machine: of a benchmark's data, and of a method's file; a hash identifies each."""

PLACES = frozenset(
    "data_dir haystack_dir needle_file essays_dir squad hotpotqa english_words prompts_file path".split()
)

PUBLISHED = "published"  # in place of a path of PUBLISHES: the data that a package publishes
PUBLISHES = frozenset(["haystack_dir", "needle_file"])


def names_file(key: str) -> bool:
    """Whether a method's parameter is a file, of which records have the hash."""
    return key.endswith("_file")


def names_published(key: str, value: object) -> bool:
    """Whether the value of a place's key is the word for published data, and no path."""
    return value == PUBLISHED and key in PUBLISHES


def is_place(key: str) -> bool:
    """Whether a key names a place on this machine."""
    return key in PLACES or names_file(key)
