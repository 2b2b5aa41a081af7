"""RocketKV: SnapKV, then pages chosen for each query."""
