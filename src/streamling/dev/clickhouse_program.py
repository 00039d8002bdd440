"""Becomes a ClickHouse server: `clickhouse_program.py LIBRARY PORT`, in the directory of the server.

The library is that of chDB, which contains all of ClickHouse. It runs a command line of clickhouse-local, whose first
statement opens the port and whose second one never ends; SIGTERM ends it.

Needs Python only, without this package or any other.
"""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path

CONFIG, DATA = "config.xml", "data"
_HOST = "127.0.0.1"
# A block of one row is as long as the server takes to notice a signal.
_STATEMENTS = """
SYSTEM START LISTEN HTTP;
SELECT sleepEachRow(0.5) FROM system.numbers
SETTINGS max_block_size = 1, function_sleep_max_microseconds_per_block = 0 FORMAT Null
"""


def main(library: str, port: str) -> None:
    chdb = ctypes.CDLL(library)
    chdb.chdb_query_cmdline.restype = ctypes.c_void_p
    chdb.chdb_query_cmdline.argtypes = [ctypes.c_int, ctypes.POINTER(ctypes.c_char_p)]
    chdb.chdb_result_error.restype = ctypes.c_char_p
    chdb.chdb_result_error.argtypes = [ctypes.c_void_p]
    options = {"config-file": CONFIG, "path": Path(DATA).absolute(), "listen_host": _HOST, "http_port": port}
    words = ["clickhouse", *(f"--{name}={value}" for name, value in options.items()), f"--query={_STATEMENTS}"]
    arguments = (ctypes.c_char_p * (len(words) + 1))(*(word.encode() for word in words), None)
    result = chdb.chdb_query_cmdline(len(words), arguments)
    sys.exit((chdb.chdb_result_error(result) or b"the server ended").decode())


if __name__ == "__main__":
    main(*sys.argv[1:])
