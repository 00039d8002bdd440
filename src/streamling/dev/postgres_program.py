"""Becomes a Postgres server: `postgres_program.py PROGRAMS PORT`, in the directory of the server.

The data directory is made the first time, here and not by the command that starts the server, so that it is made to
its end whatever becomes of that command. Postgres does not run as root: then `nobody` runs it, in a directory to which
`nobody` may not be able to walk. It need not, it is already there.

Needs nothing but Python, which need not know of this package.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
import time
from pathlib import Path

USER, DATABASE = "streamling", "streamling"
_PROC = Path("/proc")
_HERE = "/proc/self/cwd"
PASSWORD = "password"
_DATA, _DRAFT = Path("data"), Path("data.draft")
# Those of a server whose first process was killed end by themselves, and quickly.
_REMAINS_SECONDS = 20.0
_POLL_SECONDS = 0.1


def main(programs: Path, port: str) -> None:
    account = pwd.getpwnam("nobody") if os.geteuid() == 0 else None
    if not _DATA.exists():
        _make(programs, account)
    _await_remains(_DATA)
    os.chdir(_DATA)
    place = _HERE if account else str(Path.cwd())
    if account:
        os.setgroups([])
        os.setgid(account.pw_gid)
        os.setuid(account.pw_uid)
    settings = {"listen_addresses": "127.0.0.1", "port": port, "unix_socket_directories": ""}
    words = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
    program = str(programs / "postgres")  # by its whole name it finds what belongs to it
    os.execv(program, [program, "-D", place, *words])


def _make(programs: Path, account: pwd.struct_passwd | None) -> None:
    """Nothing half-made is ever found under the final name."""
    if _DRAFT.exists():
        _await_remains(_DRAFT)
        shutil.rmtree(_DRAFT)
    _DRAFT.mkdir(mode=0o700)
    # Whoever runs the program must be able to read the password, which nobody else shall.
    password = os.memfd_create("password")
    os.write(password, Path(PASSWORD).read_bytes())
    if account:
        for place in (_DRAFT, password):
            os.chown(place, account.pw_uid, account.pw_gid)
    words = [f"--username={USER}", f"--pwfile=/proc/self/fd/{password}", "--auth=scram-sha-256", "--no-instructions"]
    made = subprocess.run(
        [str(programs / "initdb"), "-D", _HERE, *words, "--encoding=UTF8", "--locale=C.UTF-8"],
        cwd=_DRAFT,
        pass_fds=[password],
        user=account.pw_uid if account else None,
        group=account.pw_gid if account else None,
        extra_groups=[] if account else None,
    )
    os.close(password)
    if made.returncode:
        sys.exit(made.returncode)
    _DRAFT.rename(_DATA)


def _await_remains(directory: Path) -> None:
    """Until no process works in the directory."""
    deadline = time.monotonic() + _REMAINS_SECONDS
    while any(_works_in(entry, directory) for entry in _PROC.iterdir() if entry.name.isdigit()):
        if time.monotonic() > deadline:
            sys.exit(f"processes of a server that was killed still work in {directory.absolute()}")
        time.sleep(_POLL_SECONDS)


def _works_in(process: Path, directory: Path) -> bool:
    try:
        return (process / "cwd").samefile(directory)
    except OSError:  # it has ended, or is somebody else's
        return False


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
