"""From the pipeline file to a plan: the nodes in order, with their inputs, columns and keys.

All checks that need neither data nor an outside system are made here, and all problems are reported at once: a node
with problems does not hide problems of other nodes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from streamling.errors import (
    EVENT_TIME,
    JOB_MODE,
    KEY_REQUIRED,
    NO_CONSUMERS,
    NO_KEY,
    NOTHING_TO_DO,
    PRIMARY_KEY,
    SCHEMA_UNKNOWN,
    SQL_SUSPICIOUS,
    SQL_TYPES,
    Caution,
    InvalidPipeline,
    StreamlingError,
    UserError,
    Where,
)
from streamling.plan.changes import change_cautions, deletes_unmatched, may_change
from streamling.plan.contract import (
    ChecksAlone,
    ChecksColumns,
    ChecksInput,
    ChoosesWidth,
    DeclaresColumns,
    Discovery,
    Finding,
    Key,
    ReshapesRows,
)
from streamling.plan.dynamic_tables import (
    fetched_columns,
    filling_problems,
    is_filled_after,
    nesting_problems,
    table_findings,
)
from streamling.plan.feedback import feedback_problems
from streamling.plan.graph import Graph, is_lookup, is_stream, make_graph, problems_of, reads_by_query
from streamling.plan.planned_node import PlannedNode
from streamling.plan.sql import LookupTable, Query, Statement, check_statement, compile_query, deletion_problems
from streamling.plan.streams import placement_cautions
from streamling.plan.types import OPERATION_COLUMN, Schema
from streamling.plan.types import Field as Column
from streamling.spec.pipeline import NodeSpec, PipelineSpec, Role, in_file_order
from streamling.spec.pipeline.options import EventTime, Keyed, RequiredKey, SingleStream, SinkOptions, SourceOptions

Discoveries = Mapping[str, Discovery | StreamlingError]
"""The results of probing sources, by reference name; an error if a probe failed."""


@dataclass(frozen=True)
class Plan:
    """Nodes in dependency order."""

    nodes: tuple[PlannedNode, ...]
    cautions: tuple[Caution, ...] = ()

    @cached_property
    def sources(self) -> tuple[PlannedNode, ...]:
        return tuple(n for n in self.nodes if n.spec.role is Role.SOURCE)

    @cached_property
    def transforms(self) -> tuple[PlannedNode, ...]:
        return tuple(n for n in self.nodes if n.spec.role is Role.TRANSFORM)

    @cached_property
    def sinks(self) -> tuple[PlannedNode, ...]:
        return tuple(n for n in self.nodes if n.spec.role is Role.SINK)

    @cached_property
    def dynamic_tables(self) -> tuple[PlannedNode, ...]:
        return tuple(n for n in self.transforms if _is_table(n.spec))

    @cached_property
    def lookups(self) -> tuple[PlannedNode, ...]:
        return tuple(n for n in self.transforms if is_lookup(n.spec))

    def node(self, ref: str) -> PlannedNode:
        """A node by name; dynamic tables are in a namespace of their own, see `dynamic_table`."""
        return self._by_ref[ref]

    def dynamic_table(self, ref: str) -> PlannedNode:
        return next(n for n in self.dynamic_tables if n.ref == ref)

    def node_by_id(self, id_: str) -> PlannedNode:
        """Any node, including dynamic tables, by `PlannedNode.id`."""
        return self._by_id[id_]

    def consumers(self, ref: str) -> tuple[PlannedNode, ...]:
        return self._consumers.get(ref, ())

    def columns_read(self, ref: str) -> frozenset[str]:
        """The columns of a node that its readers or its metrics use; all of them if a reader is not a query."""
        columns = self.node(ref).schema.names
        queries = [reader.query for reader in self.nodes if ref in reader.inputs]
        if not queries or None in queries:
            return frozenset(columns)
        event_time = self.node(ref).spec.options.telemetry.event_time
        measured = {event_time.column} if event_time is not None and event_time.column in columns else set[str]()
        return frozenset(measured).union(*(query.reads[ref] for query in queries if query is not None))

    @cached_property
    def _by_id(self) -> dict[str, PlannedNode]:
        return {n.id: n for n in self.nodes}

    @cached_property
    def _by_ref(self) -> dict[str, PlannedNode]:
        return {n.ref: n for n in self.nodes if not _is_table(n.spec)}

    @cached_property
    def _consumers(self) -> dict[str, tuple[PlannedNode, ...]]:
        return {ref: tuple(n for n in self.nodes if ref in n.inputs) for ref in self._by_ref}

    @property
    def fingerprint(self) -> str:
        """Changes if the same input could give other rows."""
        texts = [
            f"{n.ref}|{n.inputs}|{n.columns}|{n.query.all_text if n.query else n.spec.options.fingerprint}"
            for n in (*self.sources, *self.transforms)
        ]
        return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Draft:
    """All nodes of a pipeline that may have problems; columns that cannot be known are None."""

    nodes: tuple[PlannedNode, ...]
    problems: tuple[StreamlingError, ...]
    cautions: tuple[Caution, ...]


_NOTHING_DISCOVERED: Discoveries = {}


def make_plan(
    pipeline: PipelineSpec,
    *,
    discoveries: Discoveries = _NOTHING_DISCOVERED,
    enforce_primary_keys: bool = False,
    job_mode: bool = False,
) -> Plan:
    """The plan, or InvalidPipeline with every problem of the file and of the plan."""
    draft = _Planner(pipeline, make_graph(pipeline), discoveries, enforce_primary_keys, job_mode).draft()
    if draft.problems:
        raise InvalidPipeline(draft.problems, draft.cautions)
    return Plan(draft.nodes, draft.cautions)


def draft_plan(pipeline: PipelineSpec, discoveries: Discoveries) -> Draft:
    """The nodes as far as they can be planned, and every problem of the file and of the plan, in file order."""
    return _Planner(pipeline, make_graph(pipeline), discoveries, enforce_primary_keys=False, job_mode=False).draft()


@dataclass
class _Planner:
    pipeline: PipelineSpec
    graph: Graph
    discoveries: Discoveries
    enforce_primary_keys: bool
    job_mode: bool
    problems: list[StreamlingError] = field(default_factory=list)
    cautions: list[Caution] = field(default_factory=list)
    streams: dict[str, PlannedNode] = field(default_factory=dict)
    lookups: dict[str, PlannedNode] = field(default_factory=dict)
    planned: list[PlannedNode] = field(default_factory=list)

    def draft(self) -> Draft:
        self.problems.extend((*self.pipeline.problems, *self.graph.problems))
        self.cautions.extend(self.pipeline.cautions)
        self._check_job_mode()
        if not self.pipeline.sinks:
            where = Where(self.pipeline.file, 1, 1)
            self.cautions.append(Caution(NOTHING_TO_DO, "the pipeline has no sinks: nothing to do", where=where))
        for finding in table_findings(self.pipeline, self.graph):
            self._add(finding)
        for node in (*self.pipeline.sources, *self.graph.order, *self.pipeline.sinks):
            self._plan_node(node)
        self._check_lookups()
        self.problems.extend(feedback_problems(self.pipeline.nodes))
        self.cautions.extend(placement_cautions(self.planned))
        if not self.problems:
            self.cautions.extend(change_cautions(self.planned, self.graph.statements))
        return Draft(tuple(self.planned), tuple(in_file_order(self.problems)), tuple(in_file_order(self.cautions)))

    def _plan_node(self, node: NodeSpec) -> None:
        inputs = self.graph.inputs.get(node, ())
        statement = self.graph.statements.get(node)
        problems_before = len(self.problems)
        columns: Schema | None = None
        query: Query | None = None
        try:
            if statement is not None:
                query = self._compile(node, statement)
                columns = query.schema if query else None
                if columns is not None and _is_table(node):
                    columns = Schema(tuple(f for f in columns if f.name != OPERATION_COLUMN))
            else:
                columns = self._columns(node, inputs)
        except StreamlingError as error:
            self._add_problems(node, error)
        key = self._key(node, columns, inputs, certain=len(self.problems) == problems_before)
        if node.sound and (columns is not None or _is_table(node)):
            self._check(node, columns or Schema(()), key)
        elif isinstance(node.options, ChecksAlone):
            for finding in node.options.check_alone(node):
                self._add(finding)
        asks = tuple(dict.fromkeys(check.table for check in statement.checked_tables)) if statement else ()
        width = self._width(node, inputs, columns, key)
        changes = self._carries_changes(node, statement, inputs)
        view, lookups = f"node_{len(self.planned)}", statement.lookups if statement else ()
        planned = PlannedNode(node, inputs, columns, key, view, query, asks, changes, width, lookups)
        self.planned.append(planned)
        if is_lookup(node):
            self.lookups.setdefault(node.ref, planned)
        if is_stream(node):
            self.streams.setdefault(node.ref, planned)

    def _compile(self, node: NodeSpec, statement: Statement) -> Query | None:
        """The query; None if the columns of an input are not known: then only what needs no types is checked."""
        tables = {ref: self.streams.get(ref) for ref in statement.tables}
        schemas = {ref: t.columns for ref, t in tables.items() if t is not None and t.columns is not None}
        joined = {ref: table for ref in statement.lookups if (table := self._lookup_table(ref)) is not None}
        query: Query | None = None
        if len(schemas) == len(tables) and len(joined) == len(statement.lookups):
            views = {ref: t.view for ref, t in tables.items() if t is not None}
            query = compile_query(
                statement,
                schemas,
                views,
                deletes=self._deletes(node, statement),
                lookups=joined,
                tables=self._fetched_columns,
                aligned=is_filled_after(node) and statement.flat,
            )
            self.problems.extend(nesting_problems(node, query, self.pipeline, self.graph))
            for text, where in query.cautions:
                message = f"{node.described()}: {text}"
                self.cautions.append(Caution(SQL_SUSPICIOUS, message, node=node.name, where=where or node.where))
        else:
            for problem in check_statement(statement):
                self.problems.extend(problems_of(problem, node, "sql"))
        if deletes_unmatched(node):
            for problem in deletion_problems(statement):
                self.problems.extend(problems_of(problem, node, "sql"))
        if _is_table(node):
            self.problems.extend(filling_problems(node, statement, query))
        return query

    def _lookup_table(self, ref: str) -> LookupTable | None:
        """A lookup whose columns are known and can be used."""
        node = self.lookups.get(ref)
        if node is None or node.columns is None or OPERATION_COLUMN in node.columns:
            return None
        if not all(name in node.columns for name in node.primary_key):
            return None
        return LookupTable(node.columns, node.primary_key, node.view)

    @cached_property
    def _fetched_columns(self) -> dict[str, Schema]:
        return {n.ref: fetched_columns(n) for n in self.pipeline.transforms if _is_table(n)}

    def _deletes(self, node: NodeSpec, statement: Statement) -> Key | None:
        """The key of the rows that become deletes; None if rows that do not match are dropped."""
        if not deletes_unmatched(node) or deletion_problems(statement):
            return None
        return node.options.own_key

    def _carries_changes(self, node: NodeSpec, statement: Statement | None, inputs: tuple[str, ...]) -> bool:
        discovery = self.discoveries.get(node.ref)
        read = [stream for ref in inputs if (stream := self.streams.get(ref)) is not None]
        return may_change(node, statement, read, discovery if isinstance(discovery, Discovery) else None)

    def _columns(self, node: NodeSpec, inputs: tuple[str, ...]) -> Schema | None:
        """The columns of a node that is not a query; None if they are not known."""
        if not node.sound:
            return None
        if node.role is Role.SOURCE or is_lookup(node):
            return self._source_columns(node)
        upstream = self.streams.get(inputs[0]) if inputs else None
        if upstream is None or upstream.columns is None:
            return None
        if isinstance(node.options, ChecksInput):
            for finding in node.options.check_input(node, upstream.columns):
                self._add(finding)
        if isinstance(node.options, ReshapesRows):
            return node.options.reshaped(node, upstream.columns)
        return upstream.columns

    def _source_columns(self, node: NodeSpec) -> Schema | None:
        discovery = self.discoveries.get(node.ref)
        if isinstance(discovery, StreamlingError):
            raise discovery
        if discovery is not None:
            self.cautions.extend(discovery.cautions)
            return discovery.schema
        declared = node.options.output_schema(node) if isinstance(node.options, DeclaresColumns) else None
        if declared is None:
            message = "its columns were not looked up; queries that use them were checked only in part"
            self.cautions.append(node.caution(SCHEMA_UNKNOWN, message, hint="use --probe to look them up"))
        return declared

    def _add_problems(self, node: NodeSpec, error: StreamlingError) -> None:
        for problem in problems_of(error, node, *(("sql",) if reads_by_query(node) else ())):
            if problem.condition is SQL_TYPES:
                sinks = ", ".join(sorted(self._sinks_downstream(node)))
                problem.context = f"SQL validation failed for sink [{sinks}]"
            self.problems.append(problem)

    def _sinks_downstream(self, node: NodeSpec) -> set[str]:
        sinks: set[str] = set()
        downstream = {node.ref}
        for reader in (*self.graph.order, *self.pipeline.sinks):
            if any(ref in downstream for ref in self.graph.inputs[reader]):
                if reader.role is Role.SINK:
                    sinks.add(reader.name)
                elif is_stream(reader):
                    downstream.add(reader.ref)
        return sinks

    def _width(self, node: NodeSpec, inputs: tuple[str, ...], columns: Schema | None, key: Key) -> int:
        """The streams that the node sets; else one for a source, and the width of its input for other nodes."""
        read = [stream for ref in inputs if (stream := self.streams.get(ref)) is not None]
        upstream = max((stream.width for stream in read), default=1)
        if isinstance(node.options, ChoosesWidth):
            if not node.sound or columns is None:
                return 1
            try:
                return node.options.width(node, read[0].columns if read else None, key, upstream)
            except UserError as error:
                self.problems.append(error)
                return 1
        return node.options.streams or upstream

    # Keys

    def _key(self, node: NodeSpec, columns: Schema | None, inputs: tuple[str, ...], *, certain: bool) -> Key:
        """The node's own key, else the one that a probe found, else that of the node it reads."""
        own = node.options.own_key
        if own:
            self._check_key(node, own, columns)
            return own
        if not node.sound or _is_table(node):
            return ()
        discovery = self.discoveries.get(node.ref)
        upstream = self.streams.get(inputs[0]) if inputs else None
        key = discovery.primary_key if isinstance(discovery, Discovery) else upstream.primary_key if upstream else ()
        if columns is None:
            return key
        if key and all(column in columns for column in key):
            return key
        if certain:
            self._no_key(node)
        return ()

    def _check_key(self, node: NodeSpec, key: Key, columns: Schema | None) -> None:
        missing = [column for column in key if columns is not None and column not in columns]
        if missing and columns is not None:
            message = (
                f"Primary key validation failed for node '{node.name}': columns [{', '.join(missing)}] "
                f"not found in schema. Available columns: [{', '.join(columns.names)}]"
            )
            self.problems.append(node.error(PRIMARY_KEY, message, "primary_key"))

    def _no_key(self, node: NodeSpec) -> None:
        if not isinstance(node.options, Keyed | RequiredKey):
            return
        hint = "set primary_key"
        required = node.options.key_required if isinstance(node.options, SinkOptions) else None
        if required is not None:
            self.problems.append(node.error(required, "requires a primary key", hint=hint))
            return
        # Only sinks that distribute rows by key have a default number of streams (`SingleStream`).
        if node.role is Role.SINK and isinstance(node.options, SingleStream) and node.options.parallelism > 1:
            message = "'parallelism' above 1 requires a primary key: it keeps the rows of one key in order"
            self.problems.append(node.error(KEY_REQUIRED, message, "parallelism", hint=hint))
            return
        text = f"{node.described()} has no primary key, and no node upstream of it has one"
        if self.enforce_primary_keys:
            self.problems.append(UserError(NO_KEY, text, node=node.name, where=node.where, hint=hint))
        else:
            self.cautions.append(Caution(NO_KEY, text, node=node.name, where=node.where, hint=hint))

    # Rules

    def _check_lookups(self) -> None:
        joined = {ref for statement in self.graph.statements.values() for ref in statement.lookups}
        for node in self.lookups.values():
            if node.ref not in joined:
                hint = "join it in a sql transform, or remove it"
                self.cautions.append(node.spec.caution(NO_CONSUMERS, "no query joins it", hint=hint))

    def _check(self, node: NodeSpec, columns: Schema, key: Key) -> None:
        if isinstance(node.options, ChecksColumns):
            for finding in node.options.check_columns(node, columns, key):
                self._add(finding)
        event_time = node.options.telemetry.event_time
        if event_time is not None:
            self._check_event_time(node, columns.get(event_time.column), event_time)

    def _check_event_time(self, node: NodeSpec, column: Column | None, event_time: EventTime) -> None:
        name = event_time.column
        if column is None:
            reason = f"column '{name}' does not exist"
        elif column.type.kind not in ("int64", "uint64", "timestamp"):
            reason = f"column '{name}' is {column.type}, neither a timestamp nor a 64-bit integer"
        elif column.type.kind != "timestamp" and event_time.unit is None:
            reason = f"column '{name}' is {column.type} and needs a unit"
        else:
            return
        message = f"event-time instrumentation is skipped: {reason}"
        self.cautions.append(node.caution(EVENT_TIME, message, "telemetry", "event_time", "column"))

    def _add(self, finding: Finding) -> None:
        if isinstance(finding, Caution):
            self.cautions.append(finding)
        else:
            self.problems.append(finding)

    def _check_job_mode(self) -> None:
        sources = sorted(self.pipeline.sources, key=lambda n: n.name)
        endless = [n for n in sources if isinstance(n.options, SourceOptions) and not n.options.ends]
        if self.job_mode and endless:
            names = ", ".join(f"'{n.name}'" for n in endless)
            message = f"job_mode does not support sources that never end: {names}"
            hint = "limit these sources, or run without job_mode"
            self.problems.append(UserError(JOB_MODE, message, where=endless[0].where, hint=hint))


def _is_table(node: NodeSpec) -> bool:
    """Whether the node is a dynamic table: a transform whose values are looked up, but whose rows are not read."""
    return node.role is Role.TRANSFORM and not is_stream(node) and not is_lookup(node)
