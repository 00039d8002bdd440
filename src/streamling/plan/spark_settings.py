"""The settings of a Spark session that the compiled texts rely on."""

from __future__ import annotations

from types import MappingProxyType

SESSION_SETTINGS = MappingProxyType(
    {
        "spark.sql.ansi.enabled": "true",
        "spark.sql.caseSensitive": "true",
        "spark.sql.session.timeZone": "UTC",
        # A decimal result keeps its scale, a value with too many digits is an error: nothing is rounded in silence.
        "spark.sql.decimalOperations.allowPrecisionLoss": "false",
        "spark.sql.timeType.enabled": "true",
    }
)
