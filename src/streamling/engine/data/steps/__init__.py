"""The steps of the data plane, one module per kind: read, query, process, write."""
