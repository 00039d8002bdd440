"""Where bad rows of transforms and sinks come from in their source. Only looked for if there are bad rows.

A query over one node computes rows one by one and in order, so that the row that gave row k of its result can be found:
by computing it row by row, or as the last one of the shortest beginning of its input that gives k + 1 rows. The source
then reads its parts again for the places.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from streamling.connector import Json, Source
from streamling.engine.data.intake import Intake
from streamling.engine.data.report_book import ReportBook
from streamling.engine.data.results import Results
from streamling.engine.data.spark_errors import RowFailure
from streamling.errors import StreamlingError
from streamling.plan.pipeline import Plan
from streamling.plan.planned_node import PlannedNode
from streamling.spec.pipeline import Role

if TYPE_CHECKING:
    from streamling.engine.data.steps.query import QueryStep

log = logging.getLogger(__name__)

Place = Mapping[str, Json]


class Origins:
    def __init__(
        self, plan: Plan, sources: Mapping[str, Source], queries: Mapping[str, QueryStep], reports: ReportBook
    ) -> None:
        self._plan = plan
        self._sources = sources
        self._queries = queries
        self._reports = reports

    def find(
        self, results: Results, intakes: Mapping[str, Intake], node: PlannedNode, numbers: Collection[int]
    ) -> dict[int, Place]:
        """The places of rows of a node, by their numbers among its rows; without those that cannot be found: rows that
        come from several nodes, from a processor, or in a large epoch from a query."""
        try:
            return self._find(results, intakes, node, sorted(numbers))
        except (StreamlingError, RowFailure) as error:  # the place is of less worth than the letter
            log.warning("the places of bad rows of '%s' in their source are not known: %s", node.spec.name, error)
            return {}

    def _find(
        self, results: Results, intakes: Mapping[str, Intake], node: PlannedNode, numbers: Sequence[int]
    ) -> dict[int, Place]:
        if node.spec.role is Role.SOURCE:
            intake = intakes.get(node.ref)
            return self._read(results.epoch.id, node, intake, numbers) if intake is not None else {}
        query = self._queries.get(node.id)
        if results.large or query is None or not query.is_simple:
            return {}
        inner = query.input_numbers(results, numbers)
        places = self._find(results, intakes, self._plan.node(node.inputs[0]), sorted(set(inner.values())))
        return {number: places[n] for number, n in inner.items() if n in places}

    def _read(self, epoch: str, node: PlannedNode, intake: Intake, numbers: Sequence[int]) -> dict[int, Place]:
        source = self._sources[node.ref]
        locator = source.locator()
        if locator is None or (source.select is not None and source.select.condition is not None):
            return {}
        reports = self._reports.of(epoch, node.id) if intake.large else {}
        wanted = set(numbers)
        places: dict[int, Place] = {}
        first = 0
        for index, part in enumerate(intake.parts):
            if index in reports:
                end = first + reports[index].rows
                if not any(first <= number < end for number in numbers):
                    first = end
                    continue
            for place in locator.places(part):
                if first in wanted:
                    places[first] = {"node": node.ref, **place} if place else {}
                    if len(places) == len(wanted):
                        return places
                first += 1
        return places
