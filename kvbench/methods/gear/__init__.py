"""GEAR: rounded keys and values, outliers, and a low rank of the error."""
