"""Lists of rows: their columns, filters and template tags."""
