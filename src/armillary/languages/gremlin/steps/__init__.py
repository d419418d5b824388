"""The steps of the language. Each module registers the builders of its steps with `pipeline.builds`."""
