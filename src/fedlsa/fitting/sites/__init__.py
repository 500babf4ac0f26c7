"""What a site can be: arrays, tables and files, and their columns as numbers."""
