"""The lookups of a run: which version an epoch sees, and its rows in Spark.

snapshots   one version of a lookup: rows without double keys, sorted, with a hash of their content as identity
store       snapshots on disk, for the replay of an epoch that was recorded with an earlier version
versions    the versions of one lookup, and the thread that looks for new ones
tables      all lookups of a run
"""
