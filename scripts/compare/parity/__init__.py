"""kvbench beside the released code of the methods' authors, on the same tensors. See scripts/README.md.

Each module runs one project from a checkout on disk and yields `Agreement` rows; none contains its code.
"""
