"""The stages of aggregation pipelines. `pipeline.py` has the table of their names and runs them."""
