d + interval '1 month'
d - interval '1 day'
ts + interval '1 month'
ts - interval '1 day 2 hours'
tz + interval '5' minute
ts - interval '1.5 hours'
ts - timestamp '2024-01-01 00:00:00'
d - date '2024-01-01'
tms + interval '1 day'
tms - ts
d64 + interval '1 month'
tm + interval '1 minute'
interval '1 day' + d
ts - tz IS NULL
d + interval '1 year 2 months'
ts + interval '2 weeks'
ts + interval '90 minutes'
