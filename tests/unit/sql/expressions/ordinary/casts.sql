CAST(i AS BIGINT)
CAST(f AS TEXT) IS NULL
CAST(p AS DOUBLE)
CAST(p AS INT)
CAST(p AS DECIMAL(10,1))
CAST(i AS DECIMAL(12,3))
CAST(i AS TEXT)
CAST(p AS TEXT)
CAST(b AS TEXT)
CAST(b AS INT)
CAST(d AS TEXT)
CAST(ts AS TEXT)
CAST(tz AS TEXT)
CAST(ts AS DATE)
CAST(d AS TIMESTAMP)
CAST(' 12 ' AS INT)
CAST('1e3' AS DOUBLE)
CAST('2024-01-01T00:00:00+02:00' AS TIMESTAMP)
CAST('yes' AS BOOLEAN)
TRY_CAST(t AS INT)
TRY_CAST('12' AS INT)
TRY_CAST(t AS TIMESTAMP)
TRY_CAST(t AS DATE)
i::text
t::bytea
u8::int
u64::bigint
u64::text
u8::text
f4::double
i::double
i::float
l::smallint
f4::text IS NULL
CAST(abs(i) AS TINYINT UNSIGNED)
CAST(abs(i) AS SMALLINT UNSIGNED)
CAST(abs(i) AS INT UNSIGNED)
CAST(abs(l) AS BIGINT UNSIGNED)
TRY_CAST(i AS INT UNSIGNED)
TRY_CAST('300' AS TINYINT UNSIGNED)
arrow_cast(i, 'Int64')
arrow_cast(i, 'Int16')
arrow_cast(abs(i), 'UInt16')
arrow_cast(i, 'Utf8')
arrow_cast(i, 'Float32')
arrow_cast(p, 'Decimal128(12, 4)')
arrow_cast(ts, 'Timestamp(Second, None)')
arrow_cast(ts, 'Timestamp(Millisecond, None)')
arrow_cast(ts, 'Date32')
arrow_cast(t, 'Binary')
arrow_typeof(i)
arrow_typeof(u64)
arrow_typeof(t)
arrow_typeof(p)
arrow_typeof(d)
arrow_typeof(ts)
arrow_typeof(tms)
arrow_typeof(ns)
arrow_typeof(nn)
arrow_typeof(b)
arrow_typeof(f4)
tm::text
'12:34:56.5'::time
ts::time
d64::text
tms::text
tms::date
ns::int[]
tags::text[]
