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
