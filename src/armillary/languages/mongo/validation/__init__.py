"""Validators of collections: `$jsonSchema`, and the error details of documents that fail."""
