i / 0
i % 0
p / 0
9223372036854775807 + l
CAST(9223372036854775807 AS BIGINT) * l
abs(-9223372036854775808 - 0 * l)
CAST(l * 1000000 AS SMALLINT)
CAST(t AS INT)
CAST(t AS TIMESTAMP)
CAST('abc' AS BOOLEAN)
CAST(p * 100000000 AS DECIMAL(4,2))
substr(t, 2, l - 100)
sqrt(-1)
chr(-1)
split_part('a', ',', 0)
l = t
CAST(-1 - abs(i) AS INT UNSIGNED)
CAST(abs(l) + 300 AS TINYINT UNSIGNED)
u8 * 1000000000000000000 * 1000
arrow_cast(t, 'Int64')
decode(t, 'hex')
CAST(t AS TIME)
to_timestamp(t, '%Y-%m-%d')
map(['a', 'a'], [1, 2])
generate_series(1, 5, 0)
_gs_generate_series(1, 5, 0)
_gs_zip_arrays([1], ns)
json(t)
parse_json(t)
json_object(t, 1)
json_exists(t, '$', 'ERROR')
json_value('{}', '$.a', 'STRING', 'ERROR', NULL, 'NULL', NULL)
regexp_instr('abc', 'b', l - 10)
reverse_bytes32(bin)
to_u256(t)
to_u256(i)
to_u256(abs(i))
to_u256('115792089237316195423570985008687907853269984665640564039457584007913129639936')
to_i256('57896044618658097711785492504343953926634992332820282019728792003956564819968')
CAST(wi AS BIGINT)
CAST(t AS DECIMAL(60,0))
wi = t
