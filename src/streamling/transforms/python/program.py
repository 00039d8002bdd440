"""The program of a node: its code, the modules beside the pipeline file that it imports, and the function to call.

All of it is read and checked without being run. Workers get the texts, so every process of a run has the same program,
on whichever host it is and whatever happens to the files meanwhile.
"""

from __future__ import annotations

import ast
import hashlib
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.machinery import PathFinder
from pathlib import Path

INLINE_MODULE = "inline_code"
_LAMBDA = "_function"
_USUAL_NAMES = ("process", "invoke")

_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


@dataclass(frozen=True, slots=True)
class SourceFile:
    """The text of one module. `name` is the name by which the others import it."""

    name: str
    path: str
    text: str
    is_package: bool = False

    def parse(self) -> ast.Module:
        """Raises CodeFault."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                tree = ast.parse(self.text, self.path)
        except SyntaxError as error:
            raise CodeFault(error.msg, self, error.lineno or 1, error.offset or 1) from error
        except (ValueError, RecursionError, MemoryError) as error:
            raise CodeFault(str(error) or "it is nested too deeply", self, 1, 1) from error
        if self.name == INLINE_MODULE:
            _name_lambda(tree)
        return tree


@dataclass(frozen=True, slots=True)
class Program:
    """A function in a module, and the files of that module and of its imports; no files: the module is installed."""

    module: str
    function: str
    files: tuple[SourceFile, ...] = ()
    pipeline: str = ""
    """The name of the pipeline file, for messages."""
    lines: tuple[int, ...] = ()
    """For code in the pipeline file: the line of the file for every line of the code."""

    @property
    def digest(self) -> str:
        return hashlib.sha256(repr(self.files).encode()).hexdigest()


class CodeFault(Exception):
    """Code that cannot be used. `file`, `line` and `column` (from 1) say where, if that is known."""

    def __init__(self, message: str, file: SourceFile | None = None, line: int = 1, column: int = 1) -> None:
        super().__init__(message)
        self.message = message
        self.file = file
        self.line = line
        self.column = column


def inline_program(code: str, node: str, pipeline: str, directory: Path, lines: Sequence[int]) -> Program:
    """The program of code in the pipeline file. Raises CodeFault."""
    file = SourceFile(INLINE_MODULE, f"<code of '{node}'>", code)
    tree = file.parse()
    function = _choose_function(file, tree)
    files = (file, *_Neighbours(directory).imported_by(tree))
    return Program(INLINE_MODULE, function, files, pipeline, tuple(lines))


def module_program(reference: str, directory: Path) -> Program:
    """The program of `module:function`: a module beside the pipeline file, else an installed one. Raises CodeFault."""
    module, _, function = reference.partition(":")
    neighbours = _Neighbours(directory)
    neighbours.add(module)
    files = tuple(neighbours.files.values())
    if files:
        file = neighbours.files.get(module)
        if file is None:
            raise CodeFault(f"there is no module '{module}' in '{directory}'")
    else:
        file = _installed(module, directory)
    if file is not None:
        _check_function(file, function)
    return Program(module, function, files)


def _name_lambda(tree: ast.Module) -> None:
    """Code that ends with a bare lambda: give it a name."""
    last = tree.body[-1] if tree.body else None
    if isinstance(last, ast.Expr) and isinstance(last.value, ast.Lambda):
        name = ast.Name(_LAMBDA, ast.Store())
        tree.body[-1] = ast.fix_missing_locations(ast.copy_location(ast.Assign([name], last.value), last))


def _choose_function(file: SourceFile, tree: ast.Module) -> str:
    """`process`, else `invoke`, else the last function."""
    functions = dict(_functions(tree))
    if not functions:
        raise CodeFault("has no function; write `def process(row):`", file)
    name = next((name for name in _USUAL_NAMES if name in functions), list(functions)[-1])
    _check_definition(file, name, functions[name])
    return name


def _functions(tree: ast.Module) -> Iterator[tuple[str, _Definition]]:
    for statement in tree.body:
        match statement:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                yield statement.name, statement
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Lambda() as value):
                yield name, value


def _check_function(file: SourceFile, name: str) -> None:
    tree = file.parse()
    definition = dict(_functions(tree)).get(name)
    if definition is not None:
        _check_definition(file, name, definition)
        return
    names = set(_names(tree.body))
    if name not in names and not names & {"*", "__getattr__"}:
        raise CodeFault(f"has no function '{name}'", file)
    if any(isinstance(statement, ast.ClassDef) and statement.name == name for statement in tree.body):
        raise CodeFault(f"has a class '{name}' where a function is needed", file)


def _check_definition(file: SourceFile, name: str, definition: _Definition) -> None:
    line, column = definition.lineno, definition.col_offset + 1
    called = "the lambda" if name == _LAMBDA else f"the function '{name}'"
    if isinstance(definition, ast.AsyncFunctionDef):
        raise CodeFault(f"{called} is async, and must not be", file, line, column)
    arguments = definition.args
    positional = [*arguments.posonlyargs, *arguments.args]
    required = len(positional) - len(arguments.defaults)
    named = [a.arg for a, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if default is None]
    if required > 1 or named or (not positional and arguments.vararg is None):
        raise CodeFault(f"{called} must take one argument", file, line, column)


def _names(body: Sequence[ast.stmt]) -> Iterator[str]:
    """The names that statements of a module may bind; `*` if they import all names of another module."""
    for statement in body:
        match statement:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield statement.name
            case ast.Import() | ast.ImportFrom():
                yield from (alias.asname or alias.name.partition(".")[0] for alias in statement.names)
            case _:
                yield from (n.id for n in ast.walk(statement) if isinstance(n, ast.Name) and _is_stored(n))
                for part in ("body", "orelse", "finalbody", "handlers"):
                    inner = getattr(statement, part, [])
                    for block in inner:
                        yield from _names(block.body if isinstance(block, ast.ExceptHandler) else [block])


def _is_stored(name: ast.Name) -> bool:
    return isinstance(name.ctx, ast.Store)


class _Neighbours:
    """The modules beside the pipeline file that a program imports, directly or through each other."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.files: dict[str, SourceFile] = {}

    def imported_by(self, tree: ast.Module) -> tuple[SourceFile, ...]:
        for name in _imports(tree):
            self.add(name)
        return tuple(self.files.values())

    def add(self, name: str) -> None:
        """Add the module or package of this name, and what it imports, if it is there."""
        top = name.partition(".")[0]
        if top in self.files or top == INLINE_MODULE:
            return
        package = self._directory / top
        if (package / "__init__.py").is_file():
            self._add_files({_module_name(path, self._directory): path for path in sorted(package.rglob("*.py"))})
        elif (path := package.with_name(f"{top}.py")).is_file():
            self._add_files({top: path})

    def _add_files(self, paths: dict[str, Path]) -> None:
        added = [_read(name, path) for name, path in paths.items()]
        self.files |= {file.name: file for file in added}
        for file in added:
            for name in _imports(file.parse()):
                self.add(name)


def _module_name(path: Path, directory: Path) -> str:
    parts = path.relative_to(directory).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _read(name: str, path: Path) -> SourceFile:
    import tokenize

    try:
        with tokenize.open(path) as file:  # as Python decodes a source file
            text = file.read()
    except (OSError, SyntaxError, UnicodeDecodeError) as error:
        raise CodeFault(f"'{path}' cannot be read: {error}") from error
    return SourceFile(name, str(path), text, is_package=path.name == "__init__.py")


def _imports(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Import():
                yield from (alias.name for alias in node.names)
            case ast.ImportFrom(module=str(module), level=0):
                yield module


def _installed(module: str, directory: Path) -> SourceFile | None:
    """The file of an installed module, found without importing it; None if it has no text."""
    parts = module.split(".")
    path: Sequence[str] | None = None
    for number in range(1, len(parts) + 1):
        name = ".".join(parts[:number])
        spec = PathFinder.find_spec(name, path)
        if spec is None:
            where = f"neither beside the pipeline, in '{directory}', nor installed"
            raise CodeFault(f"there is no module '{name}', {where}")
        path = spec.submodule_search_locations
    origin = spec.origin if spec is not None else None
    return _read(module, Path(origin)) if origin and origin.endswith(".py") else None
