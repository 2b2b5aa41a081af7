"""MiniCache: directions of two adjacent layers merged."""
