"""Merges the reports of workers; a separate module because importing it needs Spark."""

from __future__ import annotations

from pyspark.accumulators import AccumulatorParam

from streamling.connector import Report
from streamling.engine.data.report_book import ReportKey

Reports = dict[ReportKey, Report]


class ReportMerger(AccumulatorParam):  # type: ignore[misc]  # Spark's base is untyped here
    def zero(self, value: Reports) -> Reports:
        return {}

    def addInPlace(self, value1: Reports, value2: Reports) -> Reports:
        value1.update(value2)
        return value1
