"""Reports: tables and figures, made from records alone."""
