"""The Java virtual machine of the driver: launched directly, ended by closing its standard input.

It is started with INT, TERM and HUP ignored, so that a signal to the whole process group reaches only the driver,
which then stops in order. However the driver dies, the kernel closes the pipe, and the JVM exits when it reads the end
of its input; its Python workers exit in the same way.

Every user of a machine can read the command lines of all processes. So Spark settings are not on the command line: the
session sets them (`session.py`). The user's own options for Java are in a file without a name, which Java reads.
"""

from __future__ import annotations

import logging
import os
import shlex
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import IO

from streamling.engine.process.java import java_home, major_version
from streamling.engine.process.java_log import JavaLog, last_lines, memory_hint, out_of_memory
from streamling.errors import JVM_FAILED, SETTING_INVALID, PermanentError, UserError

log = logging.getLogger(__name__)

# Packages whose internals Spark uses, as its own launcher lists them (JavaModuleOptions of Spark 4.3).
_OPENED_PACKAGES = (
    "java.lang",
    "java.lang.invoke",
    "java.lang.reflect",
    "java.io",
    "java.net",
    "java.nio",
    "java.util",
    "java.util.concurrent",
    "java.util.concurrent.atomic",
    "jdk.internal.ref",
    "sun.nio.ch",
    "sun.nio.cs",
    "sun.security.action",
    "sun.util.calendar",
)
# Since Java 23 and 22: without these, Arrow's and Netty's memory is refused, or warned of at every start.
_UNSAFE_MEMORY = (23, "--sun-misc-unsafe-memory-access=allow")
_NATIVE_ACCESS = (22, "--enable-native-access=ALL-UNNAMED")
_FLAGS = (
    *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED_PACKAGES),
    "--add-opens=java.security.jgss/sun.security.krb5=ALL-UNNAMED",
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Dio.netty.allocator.type=pooled",
    "-Dio.netty.handler.ssl.defaultEndpointVerificationAlgorithm=NONE",
    "-Djava.awt.headless=true",
    # The loggers are not managed by JMX; setting that up takes a fifth of a second.
    "-Dlog4j2.disable.jmx=true",
    # One collector thread: the machine has few cores, and they should compute rows.
    "-XX:+UseSerialGC",
    # Deep plans overflow the default stack, even while Spark stops.
    "-Xss4m",
    # Without it the heap begins with a 64th of the machine's memory, and a short run touches most of it.
    "-Xms64m",
    # No memory-mapped statistics file for jstat: it costs disk writes and is not used.
    "-XX:-UsePerfData",
    # Spark's classes fill more than the default, which would cause a collection in the middle of the start.
    "-XX:MetaspaceSize=256m",
    "-XX:+ExitOnOutOfMemoryError",
    # A crash report goes into our log, not into a file in the user's directory.
    "-XX:+ErrorFileToStderr",
    # The optimizing compiler occupies a core for seconds at every start, mostly for code that runs once. With ten times
    # the default thresholds it compiles only hot loops, which reach them within the first epochs.
    "-XX:Tier4InvocationThreshold=50000",
    "-XX:Tier4MinInvocationThreshold=6000",
    "-XX:Tier4CompileThreshold=150000",
    "-XX:Tier4BackEdgeThreshold=400000",
    "-Xshare:auto",
    "-Xlog:disable",
    "-Xlog:all=error:stderr",
)
# Ignored signals stay ignored across exec, and a JVM leaves an ignored signal alone. Spark's temporary files hold rows
# and pickled tasks, so only this user may read them; its Python workers, which write the files of sinks, restore the
# mask. A shell does this without running Python code between fork and exec.
UMASK_VARIABLE = "STREAMLING_UMASK"
_PREPARE = f'trap "" INT TERM HUP; {UMASK_VARIABLE}=$(umask); export {UMASK_VARIABLE}; umask 077; exec "$@"'
_UNUSED_JARS = ("spark-mllib_", "spark-mllib-local_")
_GATEWAY_CLASS = "org.apache.spark.api.python.PythonGatewayServer"

# How Java ends when the class archive is damaged.
_CRASHES = (-signal.SIGSEGV, -signal.SIGBUS, -signal.SIGABRT)
# Exit codes of Java itself (`ExitOnOutOfMemoryError`) and of Spark.
_OUT_OF_MEMORY_CODES = (3, 52)

# A busy two-core machine without archive needs up to 15 s to open the gateway; after four times that it will not come.
GATEWAY_TIMEOUT_S = 60.0
# Closing the input stops Spark in well under a second unless a job hangs.
STOP_TIMEOUT_S = 5.0
_EXIT_DELAY_S = 0.5


def spark_home() -> Path:
    """The directory of pyspark, found without importing it."""
    spec = find_spec("pyspark")
    if spec is None or not spec.submodule_search_locations:
        raise PermanentError(JVM_FAILED, "the package pyspark is not installed", hint="pip install pyspark")
    return Path(spec.submodule_search_locations[0])


def spark_jars() -> list[Path]:
    """Jar files only, in a fixed order: a directory on the class path would invalidate the class archive.

    Spark ML is left out: its extension registers functions that no pipeline can call, which takes a second of every
    start.
    """
    return sorted(jar for jar in (spark_home() / "jars").glob("*.jar") if not jar.name.startswith(_UNUSED_JARS))


def flags(version: int | None) -> tuple[str, ...]:
    """What every JVM of this major version is started with."""
    newer = (flag for since, flag in (_UNSAFE_MEMORY, _NATIVE_ACCESS) if version is not None and version >= since)
    return (*newer, *_FLAGS)


class Jvm:
    """One launched JVM. `launch` returns at once; `gateway` waits until it answers."""

    def __init__(
        self,
        command: Sequence[str],
        archive: Path | None,
        *,
        address: str | None,
        verbose: bool,
        heap: str | None = None,
        options: IO[bytes] | None = None,
    ) -> None:
        # The directory is removed as soon as it was read, and the other files have no names: a kill leaves nothing
        # behind that holds a secret.
        self._directory = Path(tempfile.mkdtemp(prefix="streamling-"))
        self._log = None if verbose else JavaLog()
        self._command = command
        self._options = options
        self._heap = heap
        self._archive = archive
        self._address = address
        self._process = self._start()

    @classmethod
    def launch(
        cls,
        java: Path,
        conf: Mapping[str, str],
        *,
        archive: Path | None = None,
        extra_flags: tuple[str, ...] = (),
        verbose: bool = False,
    ) -> Jvm:
        """Start Java with the memory, the options and the jars of these settings, and with the class archive if there
        is one. All other settings are up to the session."""
        extra = _java_options(conf)
        options = _option_file(extra)
        heap = conf.get("spark.driver.memory", "1g")
        command = [
            str(java),
            *flags(major_version(java)),
            f"-Xmx{heap}",
            *extra_flags,
            *([f"@/dev/fd/{options.fileno()}"] if options else []),
            # Names of such files; Java does not read one inside another.
            *(option for option in extra if option.startswith("@")),
            "-cp",
            os.pathsep.join(str(p) for p in [*spark_jars(), *_local_jars(conf)]),
            _GATEWAY_CLASS,
        ]
        return cls(
            command,
            archive,
            address=conf.get("spark.driver.bindAddress"),
            verbose=verbose,
            heap=next((o.removeprefix("-Xmx") for o in reversed(extra) if o.startswith("-Xmx")), heap),
            options=options,
        )

    def _start(self) -> subprocess.Popen[bytes]:
        java, *rest = self._command
        archive = [f"-XX:SharedArchiveFile={self._archive}"] if self._archive else []
        environment = dict(
            os.environ,
            SPARK_HOME=str(spark_home()),
            SPARK_CONNECT_MODE="0",
            PYSPARK_PYTHON=sys.executable,
            PYSPARK_DRIVER_PYTHON=sys.executable,
            _PYSPARK_DRIVER_CONN_INFO_PATH=str(self._directory / "gateway"),
        )
        if self._address is not None:
            environment["SPARK_LOCAL_IP"] = self._address
        if self._options is not None:
            environment |= _library_path(Path(java))
        shell = ["/bin/sh", "-c", _PREPARE, "sh", java, *archive, *rest]
        inherited = [] if self._options is None else [self._options.fileno()]
        output = self._log.file if self._log else sys.stderr.buffer
        return subprocess.Popen(
            shell, stdin=subprocess.PIPE, stdout=output, stderr=output, env=environment, pass_fds=inherited
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def gateway(self) -> tuple[int, str]:
        """Port and secret of the gateway; waits for it."""
        path = self._directory / "gateway"
        deadline = time.monotonic() + GATEWAY_TIMEOUT_S
        while not path.exists():  # created by a rename, so it is complete
            if self._process.poll() is not None:
                if self._archive and self._process.returncode in _CRASHES:
                    self._start_without_archive()
                    continue
                raise self.failure(f"Java ended with code {self._process.returncode} before Spark answered")
            if time.monotonic() > deadline:
                raise self.failure(f"Spark did not answer within {GATEWAY_TIMEOUT_S:.0f} s")
            time.sleep(0.005)
        data = path.read_bytes()
        shutil.rmtree(self._directory, ignore_errors=True)
        port, length = struct.unpack(">ii", data[:8])
        return port, data[8 : 8 + length].decode()

    def _start_without_archive(self) -> None:
        """Java hardly checks an archive; a damaged one can crash it. A slow start is better than none."""
        log.warning(
            "the class archive %s is damaged; starting without it. Run `streamling setup` to create it again",
            self._archive,
        )
        if self._archive:
            self._archive.unlink(missing_ok=True)
        self._archive = None
        self._process = self._start()

    def ended(self) -> bool:
        """Whether the process has ended. A lost connection is noticed shortly before the process ends.

        When memory runs out, Spark first cancels its jobs and then ends Java.
        """
        dying = self._log is not None and out_of_memory(self._log.text()) is not None
        try:
            self._process.wait(STOP_TIMEOUT_S if dying else _EXIT_DELAY_S)
        except subprocess.TimeoutExpired:
            return False
        return True

    def failure(self, message: str) -> PermanentError:
        """An error with the reason if memory ran out, otherwise with the last lines of the JVM's log."""
        text = self._log.text() if self._log else ""
        reason = out_of_memory(text)
        if reason or self._process.poll() in _OUT_OF_MEMORY_CODES:
            detail = f": {reason}" if reason else ""
            message = f"{message} because it ran out of memory{detail}"
            return PermanentError(JVM_FAILED, message, hint=memory_hint(self._heap))
        tail = last_lines(text)
        return PermanentError(
            JVM_FAILED, message + (f"; its last output:\n{tail}" if tail else ""), hint="-v shows its whole log"
        )

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """End the process: close its input, wait, kill it if it does not exit in time."""
        if self._process.stdin and not self._process.stdin.closed:
            self._process.stdin.close()
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
        self._clean_up()

    def kill(self) -> None:
        self._process.kill()
        with suppress(subprocess.TimeoutExpired):  # stuck in the kernel: nothing more can be done
            self._process.wait(STOP_TIMEOUT_S)
        self._clean_up()

    def _clean_up(self) -> None:
        shutil.rmtree(self._directory, ignore_errors=True)
        if self._log:
            self._log.stop_watching()


def _local_jars(conf: Mapping[str, str]) -> list[str]:
    """The user's jars; they are appended, so the class archive stays valid."""
    jars = [*conf.get("spark.jars", "").split(","), *conf.get("spark.driver.extraClassPath", "").split(os.pathsep)]
    return [jar.removeprefix("file:") for jar in jars if jar]


def _java_options(conf: Mapping[str, str]) -> list[str]:
    try:
        return shlex.split(conf.get("spark.driver.extraJavaOptions", ""))
    except ValueError:  # its message may quote the value, which may hold a secret
        message = "'spark.driver.extraJavaOptions' has a quote that is not closed, or ends with a backslash"
        raise UserError(SETTING_INVALID, message) from None


def _option_file(options: Sequence[str]) -> IO[bytes] | None:
    """Options in the notation of the files that `java @file` reads. Without a name, only for this user and Java."""
    lines = [f'"{_escape(option)}"\n' for option in options if not option.startswith("@")]
    if not lines:
        return None
    file = tempfile.TemporaryFile()  # noqa: SIM115
    file.write("".join(lines).encode("utf-8", "surrogateescape"))
    file.flush()
    return file


def _escape(option: str) -> str:
    for char, escape in (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t"), ("\f", "\\f")):
        option = option.replace(char, escape)
    return option


def _library_path(java: Path) -> dict[str, str]:
    """Keeps Java from executing itself again, then with all options on the command line.

    It does so if a library path names the directory of another Java's library and not its own first.
    """
    path = os.environ.get("LD_LIBRARY_PATH")
    return {"LD_LIBRARY_PATH": os.pathsep.join([str(java_home(java) / "lib" / "server"), path])} if path else {}
