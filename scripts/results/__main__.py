"""Runs every script of this folder that made a file in results/, and writes the files anew.

    python -m scripts.results --list
    python -m scripts.results --only smollm2

Exit code 1 if a script failed; the others run all the same. The commands are those of results/README.md.
"""

import sys

from scripts.made_by import commands_of
from scripts.run_all import main

if __name__ == "__main__":
    sys.exit(main(__doc__, commands_of("results")))
