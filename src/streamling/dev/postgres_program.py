"""Becomes a Postgres server: `postgres_program.py PROGRAMS PORT [SETTING=VALUE]...`, in the directory of the server.

The first start creates the data directory. It is created here, not by the command that starts the server, so that it
is completed even if that command is killed. Postgres does not run as root: root starts it as the user `nobody`. That
user may have no access to the path of the directory, but the process is already in it.

Needs Python only, without this package or any other.
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
# If the first process of a server is killed, its other processes end by themselves soon.
_PROCESSES_SECONDS = 20.0
_POLL_SECONDS = 0.1


def main(programs: Path, port: str, *more: str) -> None:
    account = pwd.getpwnam("nobody") if os.geteuid() == 0 else None
    if not _DATA.exists():
        _create_data(programs, account)
    _await_processes(_DATA)
    os.chdir(_DATA)
    place = _HERE if account else str(Path.cwd())
    if account:
        os.setgroups([])
        os.setgid(account.pw_gid)
        os.setuid(account.pw_uid)
    settings = {"listen_addresses": "127.0.0.1", "port": port, "unix_socket_directories": ""}
    assignments = [*(f"{name}={value}" for name, value in settings.items()), *more]
    options = [word for assignment in assignments for word in ("-c", assignment)]
    program = str(programs / "postgres")  # it finds its other files by its full path
    os.execv(program, [program, "-D", place, *options])


def _create_data(programs: Path, account: pwd.struct_passwd | None) -> None:
    """Create the data directory; an incomplete one never has the final name."""
    if _DRAFT.exists():
        _await_processes(_DRAFT)
        shutil.rmtree(_DRAFT)
    _DRAFT.mkdir(mode=0o700)
    # Only the account that runs initdb may read the password.
    password = os.memfd_create("password")
    os.write(password, Path(PASSWORD).read_bytes())
    if account:
        for place in (_DRAFT, password):
            os.chown(place, account.pw_uid, account.pw_gid)
    options = [f"--username={USER}", f"--pwfile=/proc/self/fd/{password}", "--auth=scram-sha-256", "--no-instructions"]
    finished = subprocess.run(
        [str(programs / "initdb"), "-D", _HERE, *options, "--encoding=UTF8", "--locale=C.UTF-8"],
        cwd=_DRAFT,
        pass_fds=[password],
        user=account.pw_uid if account else None,
        group=account.pw_gid if account else None,
        extra_groups=[] if account else None,
    )
    os.close(password)
    if finished.returncode:
        sys.exit(finished.returncode)
    _DRAFT.rename(_DATA)


def _await_processes(directory: Path) -> None:
    """Wait until no process runs in the directory."""
    deadline = time.monotonic() + _PROCESSES_SECONDS
    while any(_runs_in(entry, directory) for entry in _PROC.iterdir() if entry.name.isdigit()):
        if time.monotonic() > deadline:
            sys.exit(f"processes of a killed server still run in {directory.absolute()}")
        time.sleep(_POLL_SECONDS)


def _runs_in(process: Path, directory: Path) -> bool:
    try:
        return (process / "cwd").samefile(directory)
    except OSError:  # it has ended, or belongs to another user
        return False


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
