"""The local stack: real servers to develop and test against, downloaded once, started in a project directory."""
