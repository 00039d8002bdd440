"""WebAssembly modules of this process: the engine, the modules it has compiled, and the clock that stops calls.

Compiled modules are cached per user, because compiling takes half a second and loading two milliseconds.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import threading
import time
import weakref
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from streamling.user_cache import cache_directory

if TYPE_CHECKING:
    import wasmtime

ENGINE = "_guest.wasm"
TRANSPILER = "_transform.wasm"
STACK_BYTES = 1 << 20
TICK_S = 0.05
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


class BrokenImage(Exception):
    """The file is not a sandbox that this version can use."""


class Closable(Protocol):
    def close(self) -> None: ...


NO_LIMIT = 1 << 40
"""More ticks than a process lives."""


class Running:
    """While a call runs, the time of the engine moves on, and ends the call when its seconds are over."""

    def __init__(self, store: wasmtime.Store, seconds: float) -> None:
        self._store = store
        self._seconds = seconds

    def __enter__(self) -> None:
        self._store.set_epoch_deadline(int(self._seconds / TICK_S) + 2)
        _ticker().enter()

    def __exit__(self, *_: object) -> None:
        _ticker().leave()
        self._store.set_epoch_deadline(NO_LIMIT)  # what the host calls in between is short


class _Ticker:
    """Moves the time of the engine of this process on while it works."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._working = 0
        self._stopped = False
        threading.Thread(target=self._run, name="script clock", daemon=True).start()

    def enter(self) -> None:
        with self._condition:
            self._working += 1
            if self._working == 1:
                self._condition.notify()

    def leave(self) -> None:
        with self._condition:
            self._working -= 1

    def stop(self) -> bool:
        """Returns whether no call runs: only then the engine may be closed."""
        with self._condition:
            self._stopped = self._working == 0
            return self._stopped

    def _run(self) -> None:
        while True:
            with self._condition:
                self._condition.wait_for(lambda: self._working)
            time.sleep(TICK_S)
            with self._condition:
                if self._stopped:
                    return
                wasm_engine().increment_epoch()


class SandboxModules:
    """What all instances of a process share."""

    def __init__(self, engine: wasmtime.Engine, module: wasmtime.Module) -> None:
        import wasmtime

        self.engine = engine
        self.module = module
        self.services = wasmtime.Module(engine, bytes(wasmtime.wat2wasm(_SERVICES)))
        self.clock = wasmtime.Module(engine, bytes(wasmtime.wat2wasm(_CLOCK)))


_lock = threading.Lock()
_open: weakref.WeakSet[Closable] = weakref.WeakSet()
_bundled: dict[tuple[int, str], wasmtime.Module] = {}
_modules: dict[tuple[int, Path | None], SandboxModules] = {}


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


def sandbox_modules(image: Path | None) -> SandboxModules:
    key = (os.getpid(), image)
    with _lock:
        if key not in _modules:
            module = _compiled(image.read_bytes()) if image else _bundled_module(ENGINE)
            _modules[key] = SandboxModules(wasm_engine(), module)
        return _modules[key]


def bundled(name: str) -> wasmtime.Module:
    """A module of the package of the engine."""
    with _lock:
        return _bundled_module(name)


def compile_all() -> None:
    """Compile all modules now, so that no pipeline has to wait for it."""
    for name in (ENGINE, TRANSPILER):
        bundled(name)


def _bundled_module(name: str) -> wasmtime.Module:
    key = (os.getpid(), name)
    if key not in _bundled:
        _bundled[key] = _compiled((files("quickjs_rs") / name).read_bytes())
    return _bundled[key]


def at_end(user: Closable) -> None:
    """Close it before the process ends, if it is still there."""
    _open.add(user)


@atexit.register
def _free() -> None:
    """The library cannot free its objects once the interpreter has begun to end."""
    if not _ticker_of.cache_info().currsize or not _ticker().stop():
        return
    for user in list(_open):
        user.close()
    _modules.clear()
    _bundled.clear()
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
