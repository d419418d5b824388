"""Filters of documents, compiled to a function: operators, regular expressions, text and geospatial search."""
