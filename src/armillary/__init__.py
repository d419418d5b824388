"""Armillary: an open, partitioned multi-model database that speaks the protocols of Azure Cosmos DB."""

__version__ = "0.1.0"
