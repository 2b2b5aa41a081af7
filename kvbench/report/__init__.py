"""What people see of records: pages, tables and figures."""
