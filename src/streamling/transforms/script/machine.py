"""The sandbox of scripts: QuickJS as a WebAssembly module, in wasmtime.

The module has no access to files, network, clock or random numbers: the functions that it imports are defined in
WebAssembly as well (`modules.py`), and none of them leads out. A call is stopped by wasmtime when its time is over, in
whatever loop it is; memory and stack have fixed limits. After a trap the instance must not be used again.
"""

from __future__ import annotations

import ctypes
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamling.transforms.script.modules import NO_LIMIT, BrokenImage, Running, at_end, sandbox_modules

if TYPE_CHECKING:
    import wasmtime

MEMORY_BYTES = 128 << 20
_OK, _JS_ERROR = 0, 1


class ScriptFault(Exception):
    """An exception that JavaScript code has thrown and not caught."""

    def __init__(self, name: str, message: str, stack: str) -> None:
        super().__init__(f"{name}: {message}" if name else message)
        self.name = name
        self.message = message
        self.stack = stack


class Stopped(Exception):
    """The machine was stopped at a limit and cannot be used again."""

    def __init__(self, limit: str) -> None:
        super().__init__(limit)
        self.limit = limit
        """`time`, `stack`, `memory` or `crash`."""


class Machine:
    """One instance of the engine, with a memory of its own. Not for several threads at once."""

    def __init__(self, image: Path | None = None) -> None:
        import wasmtime

        loaded = sandbox_modules(image)
        self._store = wasmtime.Store(loaded.engine)
        self._store.set_limits(memory_size=MEMORY_BYTES)
        self._store.set_epoch_deadline(NO_LIMIT)
        services = wasmtime.Instance(self._store, loaded.services, []).exports(self._store)
        try:
            imports = [services[i.name or ""] for i in loaded.module.imports]
            exports = wasmtime.Instance(self._store, loaded.module, imports).exports(self._store)
            self._memory: Any = exports["memory"]
            self._exports: dict[str, Any] = {name: exports[name] for name in _USED}
        except (KeyError, wasmtime.WasmtimeError) as error:
            raise BrokenImage(str(error).splitlines()[0]) from error
        clock = wasmtime.Instance(self._store, loaded.clock, [self._memory, services["table"]])
        self._clock: Any = clock.exports(self._store)["nanoseconds"]
        self._staging = 0
        self._staging_bytes = 0
        self._out = self._call("qjs_alloc", 4)
        at_end(self)

    def close(self) -> None:
        self._store.close()

    def set_clock(self, microseconds: int) -> None:
        """What the clock shows from now on; it stands still."""
        self._clock.set_value(self._store, microseconds * 1000)

    def evaluate(self, code: str, seconds: float) -> int:
        """Run a program; returns a handle of its value. Raises ScriptFault and Stopped."""
        data = code.encode()
        self._stage(len(data), [(0, data)])
        with Running(self._store, seconds):
            return self._result(self._call("eval_code", self._staging, len(data), self._out))

    def apply(self, function: int, arguments: list[int], seconds: float) -> int:
        """Call a function with handles; they are released. Returns a handle. Raises ScriptFault and Stopped."""
        packed = struct.pack(f"<{len(arguments)}i", *arguments)
        # The staging area is not used here: an argument may be a view of it in a later version of the engine.
        pointer = self._call("qjs_alloc", max(4, len(packed)))
        self._memory.write(self._store, packed, pointer)
        this = self._call("new_undefined")
        with Running(self._store, seconds):
            status = self._call("call_function", function, this, pointer, len(arguments), self._out)
            for handle in (*arguments, this):
                self._call("free_value", handle)
            self._call("qjs_free", pointer, max(4, len(packed)))
            return self._result(status)

    def run_jobs(self, seconds: float) -> None:
        """Run what promises have left to do."""
        with Running(self._store, seconds):
            self._call("execute_pending_jobs")

    def stage(self, size: int, pieces: list[tuple[int, Any]]) -> None:
        """Copy pieces of bytes to their offsets in the staging area of `size` bytes."""
        self._stage(size, pieces)

    def new_text(self, offset: int, length: int) -> int:
        """A handle of a text whose UTF-8 bytes were staged."""
        return self._handle(self._call("new_string", self._staging + offset, length))

    def new_buffer(self, offset: int, length: int) -> int:
        """A handle of an ArrayBuffer with a copy of staged bytes."""
        if self._call("new_arraybuffer", self._staging + offset, length, self._out) != _OK:
            raise Stopped("memory")
        return self._read_handle()

    def take_text(self, handle: int) -> bytes:
        """The UTF-8 bytes of a text, which is released."""
        return self._take("get_string", handle)

    def take_buffer(self, handle: int) -> bytes:
        """The bytes of an ArrayBuffer, which is released."""
        return self._take("get_arraybuffer", handle)

    def member(self, handle: int, name: str) -> int:
        """A handle of a property of an object."""
        data = name.encode()
        self._stage(len(data), [(0, data)])
        if self._call("get_prop", handle, self._staging, len(data), self._out) != _OK:
            raise self._fault()
        return self._read_handle()

    def copy(self, handle: int) -> int:
        """Another handle of the same value."""
        return self._handle(self._call("dup_handle", handle))

    def release(self, handle: int) -> None:
        self._call("free_value", handle)

    def find(self, pattern: bytes) -> list[int]:
        """The addresses at which the pattern is in memory."""
        memory = self.peek(0, self._memory.data_len(self._store))
        places, at = [], memory.find(pattern)
        while at >= 0:
            places.append(at)
            at = memory.find(pattern, at + 1)
        return places

    def peek(self, address: int, length: int) -> bytes:
        """Bytes of the memory, also after the machine was stopped."""
        if address < 0 or address + length > self._memory.data_len(self._store):
            raise Stopped("crash")
        base = ctypes.addressof(self._memory.data_ptr(self._store).contents)
        return ctypes.string_at(base + address, length)

    def _stage(self, size: int, pieces: list[tuple[int, Any]]) -> None:
        if size > self._staging_bytes:
            if self._staging:
                self._call("qjs_free", self._staging, self._staging_bytes)
            self._staging = self._call("qjs_alloc", size)
            self._staging_bytes = size
            if not self._staging:
                raise Stopped("memory")
        base = ctypes.addressof(self._memory.data_ptr(self._store).contents) + self._staging
        for offset, piece in pieces:
            view = memoryview(piece).cast("B")
            if offset + view.nbytes > size:
                raise AssertionError("a piece does not fit the staging area")
            ctypes.memmove(base + offset, bytes(view), view.nbytes)

    def _take(self, name: str, handle: int) -> bytes:
        status = self._call(name, handle)
        if status != _OK:
            raise Stopped("memory")
        length = self._call("qjs_last_len")
        data = self.peek(self._call("qjs_last_ptr"), length) if length else b""
        self._call("qjs_result_free")
        self._call("free_value", handle)
        return data

    def _result(self, status: int) -> int:
        if status == _JS_ERROR:
            raise self._fault()
        if status != _OK:
            raise Stopped("crash")
        return self._read_handle()

    def _fault(self) -> Exception:
        if self._call("last_exception", self._out) != _OK:
            return Stopped("memory")
        error = self._read_handle()
        name, message, stack = (self._error_text(error, field) for field in ("name", "message", "stack"))
        if name == "InternalError" and message == "out of memory":
            return Stopped("memory")
        if not (name or message):
            message = "a value that is not an Error was thrown"
        return ScriptFault(name, message, stack)

    def _error_text(self, error: int, field: str) -> str:
        try:
            return self.take_text(self.member(error, field)).decode(errors="replace")
        except (ScriptFault, Stopped):
            return ""

    def _handle(self, handle: int) -> int:
        if not handle:
            raise Stopped("memory")
        return handle

    def _read_handle(self) -> int:
        (handle,) = struct.unpack("<i", self.peek(self._out, 4))
        return self._handle(handle)

    def _call(self, name: str, *arguments: int) -> Any:
        import wasmtime

        try:
            return self._exports[name](self._store, *arguments)
        except wasmtime.Trap as trap:
            raise Stopped(_limit_of(trap)) from trap


def _limit_of(trap: wasmtime.Trap) -> str:
    import wasmtime

    match trap.trap_code:
        case wasmtime.TrapCode.INTERRUPT:
            return "time"
        case wasmtime.TrapCode.STACK_OVERFLOW:
            return "stack"
        case wasmtime.TrapCode.UNREACHABLE:
            return "memory"  # the engine gives up if it cannot allocate
    return "crash"


_USED = (
    "call_function",
    "dup_handle",
    "eval_code",
    "execute_pending_jobs",
    "free_value",
    "get_arraybuffer",
    "get_prop",
    "get_string",
    "last_exception",
    "new_arraybuffer",
    "new_string",
    "new_undefined",
    "qjs_alloc",
    "qjs_free",
    "qjs_last_len",
    "qjs_last_ptr",
    "qjs_result_free",
)
