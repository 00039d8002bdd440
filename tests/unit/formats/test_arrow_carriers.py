"""Which Arrow type carries which logical type to Spark, and that wide decimals become canonical text on the way."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow")

from streamling.formats.arrow import arrow_type, cast_batch  # noqa: E402
from streamling.plan.types import (  # noqa: E402
    DATE64,
    FLOAT16,
    I256,
    INT64,
    INTERVAL,
    STRING,
    TIME32,
    TIME64,
    U256,
    UINT8,
    UINT16,
    UINT32,
    UINT64,
    DataType,
    Field,
    decimal,
    decimal_arb,
    list_of,
    map_of,
    struct_of,
)

CARRIERS = [
    (UINT8, pa.int16()),
    (UINT16, pa.int32()),
    (UINT32, pa.int64()),
    (UINT64, pa.decimal128(20, 0)),
    (FLOAT16, pa.float32()),
    (DATE64, pa.date32()),
    (TIME32, pa.time64("us")),
    (TIME64, pa.time64("us")),
    (INTERVAL, pa.string()),
    (DataType("binary", length=4), pa.binary()),
    (DataType("timestamp", unit="ns", zone="UTC"), pa.timestamp("us", "UTC")),
    (decimal(38, 9), pa.decimal128(38, 9)),
    (decimal(39, 9), pa.string()),
    (decimal_arb(10, 2), pa.string()),
    (U256, pa.string()),
    (I256, pa.string()),
    (map_of(STRING, INT64), pa.map_(pa.int64(), pa.string())),
    (list_of(UINT8), pa.list_(pa.int16())),
    (struct_of(Field("w", decimal(60, 0))), pa.struct([("w", pa.string())])),
]


@pytest.mark.parametrize(("logical", "carrier"), CARRIERS, ids=lambda t: str(t))
def test_carrier(logical: DataType, carrier: Any) -> None:
    assert arrow_type(logical) == carrier


WIDE = pa.decimal256(60, 20)


@pytest.mark.parametrize(
    ("type_", "logical", "value", "text"),
    [
        (WIDE, decimal(60, 20), Decimal("1E-20"), "0.00000000000000000001"),
        (WIDE, decimal(60, 20), Decimal("-12.5"), "-12.50000000000000000000"),
        (WIDE, decimal(60, 20), Decimal(0), "0"),
        (WIDE, decimal(60, 20), None, None),
        (pa.list_(WIDE), list_of(decimal(60, 20)), [Decimal(0), None], ["0", None]),
        (
            pa.struct([("w", pa.decimal256(60, 0)), ("d", pa.decimal128(5, 2))]),
            struct_of(Field("w", decimal(60, 0)), Field("d", decimal(5, 2))),
            {"w": Decimal(10**50), "d": Decimal("1.50")},
            {"w": "1" + "0" * 50, "d": Decimal("1.50")},
        ),
        (pa.map_(pa.string(), pa.decimal256(60, 0)), map_of(decimal(60, 0)), [("k", Decimal(7))], [("k", "7")]),
    ],
)
def test_wide_decimals_are_plain_digits(type_: Any, logical: DataType, value: Any, text: Any) -> None:
    batch = pa.record_batch([pa.array([value], type_)], names=["x"])
    carried = cast_batch(batch, pa.schema([pa.field("x", arrow_type(logical))]), "n")
    assert carried.column(0).to_pylist() == [text]
