"""The sandbox of scripts: QuickJS as a WebAssembly module, in wasmtime.

The module has no access to files, network, clock or random numbers: the functions that it imports are defined in
WebAssembly as well (`_IMPORTS`), and none of them leads out. A call is stopped by wasmtime when its time is over, in
whatever loop it is; memory and stack have fixed limits. After a trap the instance must not be used again.

The compiled module is cached per user, because compiling takes half a second and loading two milliseconds.
"""

from __future__ import annotations

import atexit
import ctypes
import hashlib
import os
import struct
import threading
import time
import weakref
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamling.disk import cache_directory

if TYPE_CHECKING:
    import wasmtime

MEMORY_BYTES = 128 << 20
STACK_BYTES = 1 << 20
_TICK_S = 0.05
_OK, _JS_ERROR = 0, 1
_SERVICES = """
(module
  (type $clock (func (param i32 i64 i32) (result i32)))
  (type $pair (func (param i32 i32) (result i32)))
  (table (export "table") 2 funcref)
  (func (export "clock_time_get") (type $clock)
    (call_indirect (type $clock) (local.get 0) (local.get 1) (local.get 2) (i32.const 0)))
  (func (export "environ_sizes_get") (type $pair)
    (call_indirect (type $pair) (local.get 0) (local.get 1) (i32.const 1)))
  (func (export "environ_get") (type $pair) (i32.const 0))
  (func (export "random_get") (type $pair) (i32.const 0))
  (func (export "fd_close") (param i32) (result i32) (i32.const 8))
  (func (export "fd_fdstat_get") (type $pair) (i32.const 8))
  (func (export "fd_seek") (param i32 i64 i32 i32) (result i32) (i32.const 8))
  (func (export "fd_write") (param i32 i32 i32 i32) (result i32) (i32.const 8))
  (func (export "proc_exit") (param i32) unreachable)
  (func (export "host_interrupt") (result i32) (i32.const 0))
  (func (export "host_call") (param i32 i32 i32 i32 i32) (result i32) (i32.const -1))
  (func (export "host_module_normalize") (param i32 i32 i32 i32 i32) (result i32) (i32.const 0))
  (func (export "host_module_load") (param i32 i32 i32) (result i32) (i32.const 0)))
"""
# The memory belongs to the module that imports the services above, so what writes to it is linked afterwards.
_CLOCK = """
(module
  (import "guest" "memory" (memory 0))
  (import "services" "table" (table 2 funcref))
  (global (export "nanoseconds") (mut i64) (i64.const 0))
  (func $clock (param i32 i64 i32) (result i32)
    (i64.store (local.get 2) (global.get 0)) (i32.const 0))
  (func $sizes (param i32 i32) (result i32)
    (i32.store (local.get 0) (i32.const 0)) (i32.store (local.get 1) (i32.const 0)) (i32.const 0))
  (elem (i32.const 0) $clock $sizes))
"""


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


class BrokenImage(Exception):
    """The file is not a sandbox that this version can use."""


class Machine:
    """One instance of the engine, with a memory of its own. Not for several threads at once."""

    def __init__(self, image: Path | None = None) -> None:
        import wasmtime

        loaded = _loaded(image)
        self._store = wasmtime.Store(loaded.engine)
        self._store.set_limits(memory_size=MEMORY_BYTES)
        self._store.set_epoch_deadline(1 << 40)
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
        _machines.add(self)

    def close(self) -> None:
        self._store.close()

    def set_clock(self, microseconds: int) -> None:
        """What the clock shows from now on; it stands still."""
        self._clock.set_value(self._store, microseconds * 1000)

    def evaluate(self, code: str, seconds: float) -> int:
        """Run a program; returns a handle of its value. Raises ScriptFault and Stopped."""
        data = code.encode()
        self._stage(len(data), [(0, data)])
        with self._limited(seconds):
            return self._result(self._call("eval_code", self._staging, len(data), self._out))

    def apply(self, function: int, arguments: list[int], seconds: float) -> int:
        """Call a function with handles; they are released. Returns a handle. Raises ScriptFault and Stopped."""
        packed = struct.pack(f"<{len(arguments)}i", *arguments)
        # The staging area is not used here: an argument may be a view of it in a later version of the engine.
        pointer = self._call("qjs_alloc", max(4, len(packed)))
        self._memory.write(self._store, packed, pointer)
        this = self._call("new_undefined")
        with self._limited(seconds):
            status = self._call("call_function", function, this, pointer, len(arguments), self._out)
            for handle in (*arguments, this):
                self._call("free_value", handle)
            self._call("qjs_free", pointer, max(4, len(packed)))
            return self._result(status)

    def run_jobs(self, seconds: float) -> None:
        """Run what promises have left to do."""
        with self._limited(seconds):
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

    def _limited(self, seconds: float) -> _Limited:
        self._store.set_epoch_deadline(int(seconds / _TICK_S) + 2)
        return _Limited()

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


class _Limited:
    """While a call runs, the time of the engine moves on."""

    def __enter__(self) -> None:
        _ticker().enter()

    def __exit__(self, *_: object) -> None:
        _ticker().leave()


class _Ticker:
    """Moves the time of the engines of this process on while one of them works."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._working = 0
        threading.Thread(target=self._run, name="script clock", daemon=True).start()

    def enter(self) -> None:
        with self._condition:
            self._working += 1
            if self._working == 1:
                self._condition.notify()

    def leave(self) -> None:
        with self._condition:
            self._working -= 1

    def _run(self) -> None:
        while True:
            with self._condition:
                self._condition.wait_for(lambda: self._working)
            time.sleep(_TICK_S)
            wasm_engine().increment_epoch()


class _Loaded:
    """What all instances of a process share."""

    def __init__(self, engine: wasmtime.Engine, module: wasmtime.Module) -> None:
        import wasmtime

        self.engine = engine
        self.module = module
        self.services = wasmtime.Module(engine, bytes(wasmtime.wat2wasm(_SERVICES)))
        self.clock = wasmtime.Module(engine, bytes(wasmtime.wat2wasm(_CLOCK)))


_lock = threading.Lock()
_machines: weakref.WeakSet[Machine] = weakref.WeakSet()
_bundled: dict[tuple[int, str], wasmtime.Module] = {}
_modules: dict[tuple[int, Path | None], _Loaded] = {}


def wasm_engine() -> wasmtime.Engine:
    """The engine of this process; a forked process gets its own."""
    return _engine(os.getpid())


def _ticker() -> _Ticker:
    return _ticker_of(os.getpid())


@cache
def _ticker_of(process: int) -> _Ticker:
    return _Ticker()


@cache
def _engine(process: int) -> wasmtime.Engine:
    import wasmtime

    config = wasmtime.Config()
    config.epoch_interruption = True
    config.max_wasm_stack = STACK_BYTES
    return wasmtime.Engine(config)


def _loaded(image: Path | None) -> _Loaded:
    key = (os.getpid(), image)
    with _lock:
        if key not in _modules:
            module = _compiled(image.read_bytes()) if image else _bundled_module("_guest.wasm")
            _modules[key] = _Loaded(wasm_engine(), module)
        return _modules[key]


def bundled(name: str) -> wasmtime.Module:
    """A module of the package of the engine."""
    with _lock:
        return _bundled_module(name)


def _bundled_module(name: str) -> wasmtime.Module:
    key = (os.getpid(), name)
    if key not in _bundled:
        _bundled[key] = _compiled((files("quickjs_rs") / name).read_bytes())
    return _bundled[key]


@atexit.register
def _free() -> None:
    """The library cannot free its objects once the interpreter has begun to end."""
    for machine in list(_machines):
        machine.close()
    _modules.clear()
    _bundled.clear()
    if _engine.cache_info().currsize:
        wasm_engine().close()


def _compiled(code: bytes) -> wasmtime.Module:
    """The module, from the cache of the user if it is there. Raises BrokenImage."""
    import wasmtime

    engine = wasm_engine()
    digest = hashlib.sha256(code + f"{version('wasmtime')} {STACK_BYTES}".encode()).hexdigest()
    path = cache_directory() / f"wasm-{digest[:20]}.bin"
    try:
        return wasmtime.Module.deserialize_file(engine, str(path))
    except wasmtime.WasmtimeError:
        pass  # not there, or written for another processor
    try:
        module = wasmtime.Module(engine, code)
    except wasmtime.WasmtimeError as error:
        raise BrokenImage(str(error).splitlines()[0]) from error
    _store(path, module.serialize())
    return module


def _store(path: Path, data: bytes | bytearray) -> None:
    """Several processes may do this at once: the last one wins, and all of them write the same."""
    draft = path.with_name(f"{path.name}.{os.getpid()}.{threading.get_ident()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft.write_bytes(data)
        draft.replace(path)
    except OSError:
        return  # without a cache every process compiles
