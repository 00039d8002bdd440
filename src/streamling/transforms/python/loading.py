"""Loads programs: modules from texts, under names of their own, so that they hide no other module of the process.

A module of a program imports the others by their plain names, and gets a `print` that writes to the log.
"""

from __future__ import annotations

import builtins
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import inspect
import itertools
import sys
import threading
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streamling.plugin.failures import message_of
from streamling.transforms.python.program import INLINE_MODULE, CodeFault, Program, SourceFile

_PREFIX = "streamling_python_"
_numbers = itertools.count(1)
_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class LoadedProgram:
    """A program whose modules have been run in this process."""

    program: Program
    function: Callable[[Any], Any]
    package: str

    def describe(self, error: BaseException) -> str:
        """The error in one line, with the line of the program that it comes from."""
        return describe_error(error, self.program)

    def unload(self) -> None:
        _finder.forget(self.package)


def load_program(program: Program, print_: Callable[..., None]) -> LoadedProgram:
    """Run the modules of a program. Raises CodeFault."""
    package = f"{_PREFIX}{next(_numbers)}"
    try:
        if program.files:
            _finder.add(package, program.files, print_)
            module = importlib.import_module(f"{package}.{program.module}")
        else:
            module = importlib.import_module(program.module)
        function = _function(module, program)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        _finder.forget(package)
        if isinstance(error, CodeFault):
            raise
        raise CodeFault(f"cannot be loaded: {describe_error(error, program)}") from error
    return LoadedProgram(program, function, package)


def _function(module: types.ModuleType, program: Program) -> Callable[[Any], Any]:
    function: Callable[[Any], Any] | None = getattr(module, program.function, None)
    if not callable(function):
        raise CodeFault(f"has no function '{program.function}'")
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise CodeFault(f"the function '{program.function}' is async, and must not be")
    try:
        inspect.signature(function).bind(None)
    except TypeError as error:
        raise CodeFault(f"the function '{program.function}' must take one argument") from error
    except ValueError:
        pass  # a function of a native library has no signature
    return function


def describe_error(error: BaseException, program: Program) -> str:
    """The error in one line, with the innermost line of the program, else with that of a library."""
    paths = {file.path: file for file in program.files}
    place = None
    trace = error.__traceback__
    while trace is not None:
        if (file := paths.get(trace.tb_frame.f_code.co_filename)) is not None:
            place = _place(file, trace.tb_lineno, program)
        trace = trace.tb_next
    if isinstance(error, SyntaxError) and error.filename in paths:
        place = _place(paths[error.filename], error.lineno or 1, program)
    if place is None:
        return message_of(error)
    try:
        text = error.msg if isinstance(error, SyntaxError) else str(error)
    except Exception:  # an exception of the user may not even have a text
        text = ""
    return f"{type(error).__name__}: {' '.join(text.split()) or 'no message'} ({place})"


def _place(file: SourceFile, line: int, program: Program) -> str:
    if file.name != INLINE_MODULE:
        return f"{Path(file.path).name}, line {line}"
    if 1 <= line <= len(program.lines):
        return f"line {line} of 'code', {program.pipeline}:{program.lines[line - 1]}"
    return f"line {line} of 'code'"


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the modules of loaded programs: `streamling_python_1.shaping`."""

    def __init__(self) -> None:
        self._loaders: dict[str, _Loader] = {}

    def add(self, package: str, files: Iterable[SourceFile], print_: Callable[..., None]) -> None:
        with _lock:
            if self not in sys.meta_path:
                sys.meta_path.append(self)
        root = types.ModuleType(package)
        root.__path__ = []
        sys.modules[package] = root
        modules = list(files)
        namespace = _namespace(package, {file.name.partition(".")[0] for file in modules}, print_)
        self._loaders |= {f"{package}.{file.name}": _Loader(file, namespace) for file in modules}

    def forget(self, package: str) -> None:
        for names in (self._loaders, sys.modules):
            for name in [name for name in list(names) if name == package or name.startswith(f"{package}.")]:
                names.pop(name, None)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        loader = self._loaders.get(fullname)
        if loader is None:
            return None
        file = loader.file
        locations = [str(Path(file.path).parent)] if file.is_package else None
        return importlib.util.spec_from_file_location(
            fullname, file.path, loader=loader, submodule_search_locations=locations
        )


class _Loader(importlib.abc.InspectLoader):
    def __init__(self, file: SourceFile, namespace: Mapping[str, Any]) -> None:
        self.file = file
        self._namespace = namespace

    def get_source(self, fullname: str) -> str:
        return self.file.text

    def is_package(self, fullname: str) -> bool:
        return self.file.is_package

    def exec_module(self, module: types.ModuleType) -> None:
        module.__dict__["__builtins__"] = self._namespace
        exec(compile(self.file.parse(), self.file.path, "exec", dont_inherit=True), module.__dict__)


def _namespace(package: str, own: set[str], print_: Callable[..., None]) -> dict[str, Any]:
    """What `__builtins__` is in the modules of a program."""

    def import_(
        name: str,
        globals_: Mapping[str, object] | None = None,
        locals_: Mapping[str, object] | None = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> types.ModuleType:
        top = name.partition(".")[0]
        if level or top not in own:
            return builtins.__import__(name, globals_, locals_, fromlist or (), level)
        module = importlib.import_module(f"{package}.{name}")
        if not fromlist:
            return sys.modules[f"{package}.{top}"]
        return builtins.__import__(module.__name__, globals_, locals_, fromlist, 0)

    return {**vars(builtins), "__import__": import_, "print": print_}


_finder = _Finder()
