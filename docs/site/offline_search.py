"""MkDocs hook: the search works on a site that is opened from the disk.

There a page may neither fetch nor start a worker from a file. Index and worker become scripts, and
javascripts/worker_from_disk.js starts the worker from its text.
"""

import json
from pathlib import Path


def on_post_build(config):
    """Write the search's index and its worker as scripts that define them."""
    search = Path(config.site_dir, "search")
    (worker,) = Path(config.site_dir).glob("assets/javascripts/workers/search.*.js")
    index = (search / "search_index.json").read_text(encoding="utf-8")
    (search / "search_index.js").write_text(f"var __index = {index};\n", encoding="utf-8")
    text = json.dumps(worker.read_text(encoding="utf-8"))
    (search / "search_worker.js").write_text(f"var __searchWorker = {text};\n", encoding="utf-8")
