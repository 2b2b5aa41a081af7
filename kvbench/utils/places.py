"""Keys of benchmarks that say where this machine has their data, which are identified by their hash."""

PLACES = frozenset(
    "data_dir haystack_dir needle_file essays_dir squad hotpotqa english_words prompts_file path".split()
)

PUBLISHED = "published"  # in place of a path: what a package has of it
