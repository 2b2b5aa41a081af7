"""The way out of a folder in which records exist twice: the first copy stays, and the others are set aside."""

from pathlib import Path

from kvbench.records.store import Store, read_lines, record_files, set_aside, shard_of_file


def set_copies_aside(folder: Path) -> dict[Path, int]:
    """Move each copy of a record after the first, in the order of files and lines, to the file's `.torn`; how many, by
    the file they are in now.

    Each file is changed under the lock of its shard. A copy goes because of one in an earlier place, which no process
    removes, so that several may do this at once. Damaged lines are set aside, too, as by every run. Raises UserError
    where a process is writing a file, and for a file that is no run's.
    """
    moved = {}
    seen: set[str] = set()
    for shard in [shard_of_file(path) for path in record_files(folder)]:
        with Store(folder, shard) as store:
            copies = set()
            for number, (_, record) in enumerate(read_lines(store.path)):
                if record is not None and record["key"] in seen:
                    copies.add(number)
                elif record is not None:
                    seen.add(record["key"])
            if copies:
                set_aside(store.path, store.torn, copies)
                moved[store.torn] = len(copies)
    return moved
