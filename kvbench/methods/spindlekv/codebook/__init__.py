"""The codebook: a storage, the covers that code it, its layer cache and the pack of a batch."""
