"""From a site's columns to observations: formulas, categories, features."""
