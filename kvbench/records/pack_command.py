"""`kvbench pack FOLDER`: a run's records as a small folder that names no path, machine or user."""

from collections.abc import Sequence
from pathlib import Path

from kvbench.errors import UserError, no_folder
from kvbench.records.pack import write_pack
from kvbench.records.store import record_files
from kvbench.utils.arguments import Parser
from kvbench.utils.console import print_line

EPILOG = """\
A pack has records.parquet (records and predictions), manifests/ and samples.parquet (a hash of each sample: no text
of a benchmark). `kvbench.records.load` and `kvbench verify` read it as they read a run; pandas.read_parquet and
datasets.load_dataset("parquet", data_files=…) read records.parquet.

Left out: paths, the machine's name, process ids, Slurm jobs, command lines, error messages, W&B's project and entity,
the operating system's build, every text of a manifest that is a path, and of records kept_positions, which would be
most of the bytes; and of the environment's MKL_*, KMP_*, OMP_* and their like every value but numbers and switches. The
command lists what it left out.

Not left out: predictions, expected answers, and the ids and properties of samples. Rows of your own data
(benchmark=jsonl) are packed as they are, with the ids and properties that they have: hand in no pack of rows that
others must not read.
"""


def main(arguments: Sequence[str]) -> None:
    parser = Parser(
        "pack",
        "Write what others need of a run: records, manifests and samples' hashes.",
        more=EPILOG,
    )
    parser.add_argument("folder", metavar="FOLDER", type=Path, help="the folder of a run")
    parser.add_argument("--out", metavar="FOLDER", type=Path, help="default: FOLDER.pack")
    options = parser.parse(arguments)
    folder: Path = options.folder
    if not folder.is_dir():
        raise no_folder(folder)
    if not record_files(folder):
        raise UserError(f"{folder} holds no records: name the folder of one run")
    target = options.out or folder.resolve().with_name(f"{folder.resolve().name}.pack")
    left_out = write_pack(folder, target)
    size = sum(path.stat().st_size for path in target.rglob("*") if path.is_file())
    print_line(f"{'pack':<10} {target} ({size / 1e6:.2f} MB)")
    print_line(f"{'left out':<10} {', '.join(left_out) or 'nothing'}")
