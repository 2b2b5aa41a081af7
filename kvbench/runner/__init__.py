"""One run: from a resolved configuration to a folder of records, tables and figures."""
