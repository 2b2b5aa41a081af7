"""SimLayerKV: lazy layers keep only the first and the last tokens."""
