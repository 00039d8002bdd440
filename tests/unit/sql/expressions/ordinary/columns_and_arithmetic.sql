ts
tz
i + l
i - 1
i * i
i / l
i % l
-i
-(-9223372036854775808 + 1)
i / 2
-7 / 2
-7 % 3
f + 1
f * p
f / 0
0.0 / f
f / 0.0
0 / f
-1.0 / 0.0
f % 0.0
i / 2.0
f / l
p + 1
p - p
p * 2
p * p
p % 3
u8
u16
u32
u64
f4
tm
m
mi
s
ss
bin
fb
d64
tms
nn
u8 + 1
u8 + i
u16 * 2
u32 + i
u32 - u32
u64 + 1
u64 * 2
u8 % 2
u32 / 2
f4 + f4
f4 * 2
u8 + f
