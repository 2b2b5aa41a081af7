"""SpindleKV: evictions in deep layers, a codebook of merged vectors in shallow layers."""
