i
l
f
f4
p
t
b
d
ts
tz
u8
u16
u32
u64
tm
tags
ns
nn
m
i + 0
i - 0
l % 10
l / 10
l % -1
i * 1.0
f + 1
f * 0
f * f
f / f
1 / f
f / 0
f % 2
-f
f = f
f > 0
f < 0
f = 0
f >= f
f <> f
f IS NULL
f BETWEEN -1 AND 1
f IN (0, 1)
f IS DISTINCT FROM f
f4 + 1
f4 = f4
l = i
l > i
l IN (0, -1, 9223372036854775807)
u64 = 18446744073709551615
u64 > l
u64 + 1
u64 * 2
u32 + 1
u32 * 2
u8 * 2
u16 + u16
u64 - 1
p + p
p * p
p - 0.01
p > 0
p = 99999999.99
CAST(l AS TEXT)
CAST(u64 AS TEXT)
CAST(p AS TEXT)
CAST(f AS TEXT) IS NULL
CAST(b AS TEXT)
CAST(d AS TEXT)
CAST(ts AS TEXT)
CAST(tz AS TEXT)
CAST(tm AS TEXT)
CAST(l AS DOUBLE)
CAST(u64 AS DOUBLE)
CAST(l AS DECIMAL(20,0))
CAST(i AS BIGINT)
CAST(p AS DOUBLE)
TRY_CAST(l AS INT)
TRY_CAST(f AS INT)
TRY_CAST(f AS BIGINT)
TRY_CAST(t AS INT)
TRY_CAST(t AS DOUBLE)
TRY_CAST(t AS BOOLEAN)
TRY_CAST(u64 AS BIGINT)
TRY_CAST(l AS TINYINT UNSIGNED)
TRY_CAST(p AS DECIMAL(5,2))
length(t)
octet_length(t)
upper(t)
lower(t)
reverse(t)
initcap(t)
substr(t, 2)
substr(t, 1, 1)
left(t, 1)
right(t, 1)
left(t, -1)
lpad(t, 4, '*')
rpad(t, 4, '*')
repeat(t, 2)
replace(t, ' ', '_')
trim(t)
strpos(t, 'é')
strpos(t, '')
split_part(t, ' ', 1)
starts_with(t, '')
ends_with(t, '😀')
ascii(t)
t || t
concat(t, t)
t = ''
t < 'b'
t LIKE '_'
t LIKE '%é%'
t ILIKE '%É%'
t ~ '^.$'
t ~ '\w'
t ~ '\s'
md5(t)
sha256(t)
encode(t, 'hex')
encode(t, 'base64')
string_to_array(t, ' ')
abs(f)
round(f)
floor(f)
ceil(f * 1)
sqrt(abs(f))
exp(f)
ln(f)
log10(f)
log2(f)
power(f, 2)
power(2, f)
signum(f)
sin(f)
atan(f)
isnan(f)
round(f4 + f4)
abs(p)
round(p, 1)
trunc(p)
to_hex(l)
greatest(f, 0.0)
least(f, 0.0)
greatest(l, 0)
least(i, 0)
greatest(t, 'a')
coalesce(f, 0)
nullif(f, 0)
nullif(t, '')
date_part('year', d)
date_part('month', d)
date_part('day', d)
date_part('doy', d)
date_part('dow', d)
date_part('isodow', d)
date_part('week', d)
date_part('quarter', d)
date_part('year', ts)
date_part('hour', ts)
date_part('second', ts)
date_part('microsecond', ts)
date_part('epoch', ts)
date_part('hour', tm)
d = '0001-01-01'
d > '1970-01-01'
d + interval '0 days'
d - date '1970-01-01'
ts = ts
ts < tz
ts + interval '0 seconds'
CAST(d AS TIMESTAMP) IS NULL
CAST(ts AS DATE)
CAST(ts AS TIME)
to_char(d, '%Y-%m-%d')
to_unixtime(tz)
array_length(tags)
array_length(ns)
cardinality(ns)
cardinality(m)
tags[1]
tags[-1]
tags[1:2]
ns[1]
nn[1]
nn[1][1]
nn[2]
array_has(ns, 1)
array_has(tags, '')
array_to_string(tags, ',')
array_to_string(ns, ',', '-')
array_append(ns, 1)
array_concat(ns, ns)
array_distinct(ns)
array_position(ns, -9223372036854775808)
array_max(ns)
array_min(ns)
array_reverse(tags)
flatten(nn)
ns = ns
tags = tags
m['']
m['😀']
map_keys(m)
map_values(m)
