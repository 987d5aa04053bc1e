"""The report: JSON, a table for a terminal, one page for a browser."""
