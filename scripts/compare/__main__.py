"""Runs every comparison that this machine has the other side of.

    python -m scripts.compare --list
    python -m scripts.compare CHECKOUTS=../released PAPERS=../papers FOLDER=parity KVPRESS_PYTHON=kvpress-env/bin/python

CHECKOUTS has a folder for each project, of its name; scripts/README.md says which commits were compared, and how the
environment of KVPRESS_PYTHON is made. A comparison whose value is not given is left out and named at the end. Exit code
1 if one failed; the others run all the same.
"""

import sys

from scripts.compare.benchmark_parity import BENCHMARKS
from scripts.compare.released_code_parity import PROJECTS
from scripts.run_all import main

HERE = "-m scripts.compare"
RELEASED = "results/benchmarks/released_code_parity.json"
KVPRESS = ("kvpress_parity", "kvpress_heads_parity", "kvpress_decoding_parity")
COMMANDS = [
    f"python {HERE}.check_published --papers PAPERS",
    *(f"python {HERE}.released_code_parity {name}=CHECKOUTS/{name} --out {RELEASED}" for name in PROJECTS),
    *(f"python {HERE}.benchmark_parity {name}=CHECKOUTS/{name}" for name in BENCHMARKS),
    f"python {HERE}.kvpress_parity prompts FOLDER",
    *(
        f"{python} {HERE}.{name} {step} FOLDER"
        for name in KVPRESS
        for python, step in (("KVPRESS_PYTHON", "press"), ("python", "compare"))
    ),
]

if __name__ == "__main__":
    sys.exit(main(__doc__, COMMANDS))
