"""Record the results anew. One that changed while no version did is refused, and nothing is written.

A preset that has no results yet gets the seed of its prompt, too.
"""

import sys

from tests.golden import methods, metrics
from tests.golden.files import differences, forgotten, recorded, write

KINDS = {"methods": methods.results, "metrics": metrics.results}


def main() -> int:
    refused = []
    if new := [name for name in methods.NAMES if name not in recorded("methods")]:
        found = {name: seed for name in new if (seed := methods.find_seed(name))}
        write("seeds", recorded("seeds") | found)
    made = {kind: results() for kind, results in KINDS.items()}
    for kind, results in made.items():
        old = recorded(kind)
        for name, new in results.items():
            if name in old and old[name]["versions"] == new["versions"] and (changed := differences(old[name], new)):
                refused.append(forgotten(name, new, changed))
            elif name in old and old[name]["versions"] == new["versions"]:
                results[name] = old[name]  # no other digits for the same result
    if refused:
        print("\n".join(refused), file=sys.stderr)
        return 1
    for kind, results in made.items():
        write(kind, results)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
