"""Keys of benchmarks that name the place of data on this machine; the data's hash identifies it."""

PLACES = frozenset(
    "data_dir haystack_dir needle_file essays_dir squad hotpotqa english_words prompts_file path".split()
)

PUBLISHED = "published"  # in place of a path: the data that a package publishes
