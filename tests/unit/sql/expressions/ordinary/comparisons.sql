i = l
i <> 2
f > 2
p >= 10
p = 10.25
'3' = l
l < '4'
t = 'Hello wORLD'
d = '2024-01-31'
ts > '2024-01-01'
ts >= tz
tz < '2024-06-01T00:00:00Z'
d < ts
b AND i > 0
b OR i > 0
NOT b
b IS TRUE
b IS NOT FALSE
t IS NULL
t IS NOT NULL
i IS DISTINCT FROM 7
i IS NOT DISTINCT FROM l
i BETWEEN 0 AND 5
i NOT BETWEEN l AND 5
i IN (7, 1, NULL)
i NOT IN (7, 1)
i IN ('7', '1')
u8 = 7
u8 > i
u32 >= l
u64 > 0
u64 = u8
f4 > 1
tm > '12:00:00'
tm = tm
tm IS NULL
tms = ts
tms > '2024-01-01'
d64 = d
d64 < '2024-06-01'
bin = x'00ff'
fb IS NULL
m IS NOT NULL
s = s
nn = nn
u8 IN (7, 255)
u64 BETWEEN 1 AND 100
tms BETWEEN '2000-01-01' AND '2024-06-01'
