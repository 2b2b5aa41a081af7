"""KVQuant: uneven levels, keys before RoPE, outliers apart."""
