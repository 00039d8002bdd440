"""The data plane of one epoch: a walk over the plan, one step per node.

Small epochs: the driver has read the rows; queries take and return Arrow, processors and writers run in this process;
no Python worker is involved. Large epochs: workers read the parts, and process and write them too if the transform or
sink allows it. Readers, processors, writers, queries and the order of rows are the same in both.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

from streamling.connector import BadRow, Epoch, Report, Sink, Source, Transform
from streamling.connector.reports import combine
from streamling.connector.table import TableBackend
from streamling.engine.data.dynamic_tables import EpochTables, Tables, add_values
from streamling.engine.data.epoch_clock import EpochClock
from streamling.engine.data.exclusions import Exclusions
from streamling.engine.data.intake import Intake
from streamling.engine.data.lookups.tables import LookupTables
from streamling.engine.data.origins import Origins, Place
from streamling.engine.data.reading import find_bad_rows
from streamling.engine.data.report_book import SELECTION, ReportBook, given_to
from streamling.engine.data.results import NodeRows, Results
from streamling.engine.data.row_accounts import RowAccounts
from streamling.engine.data.spark_errors import RowFailure, spark_errors
from streamling.engine.data.steps.driver_joins import driver_joins
from streamling.engine.data.steps.fill import FillStep
from streamling.engine.data.steps.joined_lookups import JoinedLookups
from streamling.engine.data.steps.process import ProcessStep
from streamling.engine.data.steps.query import QueryStep
from streamling.engine.data.steps.read import ReadStep
from streamling.engine.data.steps.write import WriteStep
from streamling.engine.protocol.activity import Activity
from streamling.engine.protocol.bad_rows import BadRows, Rejects
from streamling.engine.protocol.losses import Losses
from streamling.log_context import log_fields
from streamling.plan.dynamic_tables import is_filled_after
from streamling.plan.graph import is_lookup
from streamling.plan.pipeline import Plan
from streamling.plan.planned_node import PlannedNode
from streamling.retry import Retry
from streamling.spec.pipeline import Role
from streamling.spec.pipeline.options import OnError
from streamling.telemetry.event_time import EventTimeColumn, EventTimes, event_time_of
from streamling.telemetry.meters import RowCounts

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

_NO_TABLES: Mapping[str, TableBackend] = {}


class Dataflow:
    """Computes epochs. Holds what does not change between them."""

    def __init__(
        self,
        session: SparkSession,
        plan: Plan,
        sources: Mapping[str, Source],
        transforms: Mapping[str, Transform],
        sinks: Mapping[str, Sink],
        bad_rows: BadRows,
        retry: Retry,
        lookups: LookupTables | None = None,
        backends: Mapping[str, TableBackend] = _NO_TABLES,
        activity: Activity | None = None,
    ) -> None:
        self._activity = activity or Activity()
        self._session = session
        self._plan = plan
        self._sources = sources
        self._transforms = transforms
        self._bad_rows = bad_rows
        self._retry = retry
        self._lookups = lookups
        self._reports = ReportBook()
        self._reads: dict[str, ReadStep] = {}
        self._queries: dict[str, QueryStep] = {}
        self._processes: dict[str, ProcessStep] = {}
        self._writes: dict[str, WriteStep] = {}
        self._fills: dict[str, FillStep] = {}
        self._tables = Tables(plan, backends)
        for node in plan.nodes:
            self._add_step(node, sinks)
        filtered = [id_ for id_, read in self._reads.items() if read.filters]
        unfiltered = [id_ for id_ in self._fills if self._queries[id_].input_rows is not None]
        self._accounts = RowAccounts(plan, filtered, self._processes, unfiltered)
        self._event_columns = self._find_event_columns()
        self._origins = Origins(plan, sources, self._queries, self._reports)

    def _add_step(self, node: PlannedNode, sinks: Mapping[str, Sink]) -> None:
        inputs = tuple(self._plan.node(ref) for ref in node.inputs)
        policy = self._bad_rows.policy(node.id)
        if node.spec.role is Role.SOURCE:
            self._reads[node.id] = ReadStep(node, self._sources[node.ref], policy, self._reports)
        elif node.spec.role is Role.SINK:
            self._writes[node.id] = WriteStep(node, inputs[0], sinks[node.ref])
        elif node in self._plan.dynamic_tables:
            self._add_fill(node, inputs)
        elif node.ref in self._transforms:
            transform = self._transforms[node.ref]
            self._processes[node.id] = ProcessStep(node, inputs[0], transform, policy, self._reports)
        elif not is_lookup(node.spec):
            self._queries[node.id] = self._query_step(node, inputs)

    def _query_step(self, node: PlannedNode, inputs: tuple[PlannedNode, ...]) -> QueryStep:
        lookups = [self._plan.node(ref) for ref in node.lookups]
        if not lookups or self._lookups is None:
            return QueryStep(node, inputs)
        joined = JoinedLookups(node, lookups, self._lookups)
        return QueryStep(node, inputs, joined, driver_joins(node, inputs, lookups, self._lookups))

    def _add_fill(self, node: PlannedNode, inputs: tuple[PlannedNode, ...]) -> None:
        if node.query is None:
            return
        self._queries[node.id] = QueryStep(node, inputs)
        read = self._reads.get(inputs[0].id)
        unfiltered = None
        # Rows that are added after they were tested are those that queries get.
        if read is not None and read.filters and not is_filled_after(node.spec):
            read.read_unfiltered = True
            unfiltered = read.unfiltered_rows
        self._fills[node.id] = FillStep(node, inputs[0], self._queries[node.id], unfiltered)

    def _find_event_columns(self) -> dict[str, EventTimeColumn]:
        """The columns with event times of rows that Spark makes; readers, processors and writers measure their own."""
        spark = [node for node in self._plan.nodes if node.id in self._queries or node.id in self._writes]
        spark += [node for node in self._plan.sources if self._reads[node.id].event_time is None]
        columns = {node.id: event_time_of(node.spec, node.schema) for node in spark}
        return {id_: column for id_, column in columns.items() if column is not None}

    @property
    def fills_after(self) -> bool:
        """Whether an epoch that every sink has still adds values to dynamic tables."""
        return self._tables.filled_after

    def additions(self, results: Results) -> dict[str, pa.Array]:
        """The values that the epoch adds to dynamic tables with `populate: after`, by table."""
        return results.dynamic_tables.additions()

    def add_values(self, additions: Mapping[str, pa.Array]) -> None:
        """Add the values of an epoch that every sink has to the dynamic tables with `populate: after`."""
        for ref, values in additions.items():
            add = partial(add_values, self._tables.backends[ref], values)
            node = self._tables.nodes[ref]
            with self._activity.step("adding values", node.id):
                self._retry(add, f"dynamic table '{node.spec.name}'")

    def compute(
        self,
        epoch: Epoch,
        intakes: Mapping[str, Intake],
        *,
        wanted: Sequence[PlannedNode],
        max_bytes: int | None = None,
        clock: EpochClock | None = None,
    ) -> Results:
        """The rows of all nodes that the wanted sinks need. On return queries are analysed but not computed, and
        processors of this process have run. A step that fails transiently is retried alone. Raises EpochTooLarge."""
        # A node that stores dead letters runs in any case: they may be all that an interrupted epoch lacks.
        rejecting = [*self._rejecting_nodes(), *(node for node in self._plan.nodes if self._tolerates(node))]
        storing = [node for node in rejecting if self._bad_rows.keeps_letters_of(node.id)]
        needed = self._upstream([*wanted, *storing, *self._tables.filled])
        large = any(intake.large for intake in intakes.values())
        self._reports.begin(epoch.id)
        results = Results(self._session, epoch, self._reports, large=large, max_bytes=max_bytes, clock=clock)
        results.intakes = intakes
        results.advance = self._activity.advance
        results.event_columns = self._event_columns
        results.uncounted = self._accounts.uncounted(needed, large=large)
        results.dynamic_tables = EpochTables(self._tables, partial(self._compute_values, results))
        results.locate = partial(self._locate, results, intakes)
        results.build = partial(self._compute_node, results=results, intakes=intakes, needed=needed)
        try:
            for node in self._plan.nodes:
                if node.id in self._fills:
                    with self._activity.step(f"adding the values of epoch {epoch.number}", node.id):
                        self._retry(partial(results.dynamic_tables.fill, node), f"node '{node.spec.name}'")
                elif node.id in needed and node.spec.role is not Role.SINK:
                    with self._activity.step(f"computing epoch {epoch.number}", node.id):
                        self._add_rows(node, results)
        except BaseException:
            results.release()
            raise
        return results

    def _add_rows(self, node: PlannedNode, results: Results) -> None:
        if results.build is None:
            raise AssertionError(node)
        while True:
            try:
                results.add(results.build(node))
                return
            except RowFailure:
                found = self.leave_out_bad_rows(results)
                if not self._search(node, results) and not found:
                    raise

    def _compute_values(self, results: Results, node: PlannedNode) -> pa.Array:
        """The values that a query fills a dynamic table with."""
        step = self._fills[node.id]
        while True:
            try:
                with spark_errors(node.spec.name):
                    return self._retry(partial(step.values, results), f"node '{node.spec.name}'")
            except RowFailure:
                found = self.leave_out_bad_rows(results)
                if not self._search(node, results) and not found:
                    raise

    def leave_out_bad_rows(self, results: Results) -> bool:
        """After a RowFailure: find the rows at fault of the queries and sources whose `on_error` is not `fail`, and
        make the rows of the nodes behind them anew. False: no such row was found. Raises RowFailure if a row of
        another source is at fault."""
        changed: set[str] = set()
        found = False
        for node in self._plan.nodes:
            if not results.has(node.id) or results.rows(node.id).in_process or results.build is None:
                continue  # rows that are in this process have been computed
            if any(self._plan.node(ref).id in changed for ref in node.inputs):
                results.add(results.build(node))
                changed.add(node.id)
            if self._search(node, results):
                results.add(results.build(node))
                changed.add(node.id)
                found = True
        if not found:
            self._check_sources(results)
        return found

    def _search(self, node: PlannedNode, results: Results) -> bool:
        """Let a node find its rows at fault, so that it leaves them out. False: there are none, or they are not to be
        left out."""
        if not self._tolerates(node):
            return False
        if node.id in self._queries:
            return self._queries[node.id].leave_out_bad_rows(results)
        intake = results.intakes.get(node.ref)
        return self._reads[node.id].leave_out_bad_rows(results, intake.parts if intake is not None else ())

    def _check_sources(self, results: Results) -> None:
        """Raises RowFailure that names the source, if a source with `on_error: fail` is at fault: the node that has
        computed its rows got the error."""
        for node in self._plan.nodes:
            if node.id in results.rows_as_read and not self._tolerates(node) and not results.rows(node.id).in_process:
                results.rows(node.id).compute()

    def compute_unread(self, results: Results, wanted: Sequence[PlannedNode]) -> None:
        """Compute queries and filters that store dead letters and that no wanted sink reads: letters may be all that
        lacks."""
        read = self._upstream(wanted)
        for node in self._plan.nodes:
            is_stored = self._tolerates(node) and self._bad_rows.keeps_letters_of(node.id)
            if is_stored and node.id not in read and node.id not in self._fills:
                self._retry(results.rows(node.id).compute, f"node '{node.spec.name}'")

    def read_unread(self, results: Results) -> None:
        """Let executors read sources that they have not read for any node: a query may be one that cannot give rows."""
        for ref, intake in results.intakes.items():
            node = self._plan.node(ref)
            if intake.large and results.has(node.id):
                with self._activity.step(f"reading epoch {results.epoch.number}", node.id):
                    self._retry(partial(results.ensure_report, node), f"node '{node.spec.name}'")

    def _locate(
        self,
        results: Results,
        intakes: Mapping[str, Intake],
        node: PlannedNode,
        input_: PlannedNode,
        numbers: Collection[int],
    ) -> dict[int, Place]:
        keeps = self._bad_rows.keeps_letters_of(node.id)
        return self._origins.find(results, intakes, input_, numbers) if keeps else {}

    def _tolerates(self, node: PlannedNode) -> bool:
        """Whether a query, or a source that Spark filters, goes on without the rows that cannot be computed."""
        computed = node.id in self._queries or (node.id in self._reads and self._reads[node.id].selects)
        return computed and self._bad_rows.policy(node.id) is not OnError.FAIL

    def _compute_node(
        self, node: PlannedNode, results: Results, intakes: Mapping[str, Intake], needed: set[str]
    ) -> NodeRows:
        losses = Losses(node.spec.name)
        step = partial(self._rows, node, results, intakes, needed)
        with log_fields(node=node.spec.name):
            return self._retry(
                lambda: losses.guard(step, divisible=results.max_bytes is not None), f"node '{node.spec.name}'"
            )

    def _rows(self, node: PlannedNode, results: Results, intakes: Mapping[str, Intake], needed: set[str]) -> NodeRows:
        readers = [n for n in self._plan.consumers(node.ref) if n.id in needed]
        shared = sum(_count_reads(reader, node) for reader in readers) > 1
        with spark_errors(node.spec.name):
            if node.id in self._processes:
                return self._processes[node.id].rows(results, shared=shared)
            if node.id in self._reads:
                rows = self._reads[node.id].rows(results, intakes.get(node.ref), shared=shared)
            else:
                rows = self._queries[node.id].rows(results, shared=shared)
            if shared:
                results.settle(rows)
            used_twice = (shared and node.id in self._queries) or node.id in self._event_columns
            read = any(n.spec.role is not Role.SINK for n in readers)
            # Spark would call functions of plugins a second time to count the rows, and they may give others.
            is_counted = node.id in results.uncounted and node.query is not None and bool(node.query.functions)
            if ((used_twice and read) or is_counted) and not results.large:
                rows.materialize()
            return rows

    def write(self, node: PlannedNode, results: Results, exclusions: Exclusions, *, final: bool = True) -> list[Report]:
        """Let a sink's writers write; returns one report per writer. Raises WaitsForOthers unless `final`."""
        return self._writes[node.id].write(results, exclusions, final=final)

    def can_recount(self, sink: PlannedNode, wanted: Iterable[PlannedNode]) -> bool:
        """Whether the rows of a sink can be computed again, besides those of the wanted ones: not if that would call a
        processor again that has effects elsewhere, or gives other rows."""
        running = self._upstream(wanted)
        again = [id_ for id_ in self._upstream([sink]) if id_ in self._processes and id_ not in running]
        return all(self._transforms[id_].capabilities.deterministic for id_ in again)

    def recount(self, node: PlannedNode, results: Results) -> Report:
        """The rows of an epoch that a sink has already; `detail` is how many it has written."""
        with spark_errors(node.spec.name):
            return self._writes[node.id].recount(results)

    def with_origins(
        self, node: PlannedNode, results: Results, bad_rows: Sequence[BadRow], exclusions: Exclusions
    ) -> tuple[BadRow, ...]:
        """Rows that a sink rejects, with their places in the source as far as they can be found."""
        return results.with_origins(node, self._plan.node(node.inputs[0]), bad_rows, exclusions)

    def rejects(self, results: Results, intakes: Mapping[str, Intake]) -> dict[str, Rejects]:
        """The reports of sources and transforms for an epoch that every sink has, with ways to get all bad rows."""
        epoch = results.epoch.id
        rejects = {ref: self._source_rejects(epoch, ref, intake) for ref, intake in intakes.items()}
        for node in self._rejecting_nodes():
            if node.id in self._processes and self._bad_rows.keeps_letters_of(node.id):
                self._retry(partial(results.ensure_report, node), f"node '{node.spec.name}'")
            reports = self._reports.of(epoch, node.id)
            if reports or (node.id in self._queries and self._bad_rows.keeps_letters_of(node.id)):
                report = combine(reports.values())
                if node.id in self._queries:
                    report = replace(report, rows=results.row_counts.get(node.id, 0))
                rejects[node.id] = Rejects(report)
        return rejects

    def row_counts(
        self, results: Results, rejects: Mapping[str, Rejects], sinks: Mapping[str, int]
    ) -> dict[str, RowCounts]:
        """The rows of sources and transforms in an epoch that every sink has. `sinks`: the rows that sinks got."""
        results.read_observed()
        out = {self._plan.node(self._plan.node_by_id(id_).inputs[0]).id: rows for id_, rows in sinks.items() if rows}
        out |= results.row_counts
        for node in self._plan.nodes:
            if given := self._reports.of(results.epoch.id, given_to(node.id)):
                out[node.id] = combine(given.values()).rows
        out |= {id_: rejects[id_].report.rows for id_ in self._processes if id_ in rejects}
        out = self._unreported(results) | out
        read = {id_: rejects[id_].report.rows for id_ in self._reads if id_ in rejects}
        # What was counted of a source comes first: a row that is lost behind its reader is found.
        out = {id_: rows for id_, rows in read.items() if not self._reads[id_].filters} | out
        rejected = {id_: one.report.rejected for id_, one in rejects.items()}
        return self._accounts.counts(read, out, rejected)

    def _unreported(self, results: Results) -> dict[str, int]:
        """No rows: those of processors without a report, and of their inputs. Executors are not asked to process a
        frame without partitions."""
        silent = [id_ for id_ in self._processes if results.has(id_) and not self._reports.of(results.epoch.id, id_)]
        inputs = [self._plan.node(ref).id for id_ in silent for ref in self._plan.node_by_id(id_).inputs]
        unknown = (id_ for id_ in inputs if not self._reports.of(results.epoch.id, id_))
        return dict.fromkeys([*silent, *unknown], 0)

    def event_times(self, results: Results, rejects: Mapping[str, Rejects]) -> dict[str, EventTimes]:
        """The event times of sources and transforms, and of sinks that drop rows in Java."""
        reported = {id_: one.report.event_times for id_, one in rejects.items()}
        return {**results.event_times, **{id_: times for id_, times in reported.items() if times is not None}}

    def count(self, reports: Mapping[str, Report]) -> None:
        """Give the sources and transforms the counts of their readers and processors, in a finalized epoch."""
        nodes: dict[str, Source | Transform] = {**self._sources, **self._transforms}
        for ref, node in nodes.items():
            if ref in reports and reports[ref].counts:
                with log_fields(node=self._plan.node(ref).spec.name):
                    node.count(reports[ref].counts)

    def _source_rejects(self, epoch: str, ref: str, intake: Intake) -> Rejects:
        reports = dict(self._reports.of(epoch, ref))
        selection = reports.pop(SELECTION, Report())
        report, complete = intake.report, intake.report.complete
        if intake.large:
            known = all(index in reports for index in range(len(intake.parts)))
            report = combine(reports.values()) if known else Report(sum(s.rows for s in intake.slices))
            complete = known and all(report.complete for report in reports.values())
        whole = replace(combine([report, selection]), rows=report.rows - selection.rejected)

        def find_all() -> Iterator[BadRow]:
            return chain(find_bad_rows(self._reads[ref].reader, intake.parts), selection.bad_rows)

        return Rejects(whole, None if complete else find_all)

    def _rejecting_nodes(self) -> list[PlannedNode]:
        """The transforms that can reject rows: those with a processor, and queries that go on without them."""
        return [node for node in self._plan.transforms if node.id in self._processes or self._tolerates(node)]

    def _upstream(self, nodes: Iterable[PlannedNode]) -> set[str]:
        """The nodes and everything they read, directly or indirectly."""
        needed: set[str] = set()
        stack = list(nodes)
        while stack:
            node = stack.pop()
            if node.id not in needed:
                needed.add(node.id)
                stack.extend(self._plan.node(ref) for ref in node.inputs)
        return needed


def _count_reads(reader: PlannedNode, node: PlannedNode) -> int:
    """How often a reader reads a node: a query may use it in several branches."""
    return max(1, reader.query.count_reads(node.view)) if reader.query is not None else 1
