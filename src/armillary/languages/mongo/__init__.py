"""The MongoDB language: filters, projections, sorts, updates, index definitions, validators and aggregation pipelines,
compiled to functions of BSON documents. Nothing here reads or writes a collection.
"""
