"""The local stack: real servers to develop and test against, fetched once, started in a directory of the project."""
