"""Updates and upserts: operators, replacements and pipelines as functions from a document to a new one."""
