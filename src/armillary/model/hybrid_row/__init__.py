"""HybridRow, the binary format of .NET's batches: rows that a schema describes (`rows.py`), and the stream of records
that carries them (`record_stream.py`). Which schemas a batch uses is said in `doors/sql/items/batch_rows.py`."""
