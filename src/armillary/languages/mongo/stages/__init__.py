"""Stages of aggregation pipelines, a family of them in each module; `pipeline.py` knows them by name and runs them."""
