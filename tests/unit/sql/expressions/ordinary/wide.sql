w = w
w <> 1.5::decimal(10,2)
w > 1
w < 0
w >= 7
w <= u8
w BETWEEN 0 AND 5
w IN (7, 0)
w IS NULL
w IS NOT DISTINCT FROM w
wi = 7
wi > l
wi < -1
wi <> wi
wi > w
wi IN (7, -1)
CASE wi WHEN 7 THEN 'seven' ELSE 'other' END
CASE WHEN wi > 0 THEN 'plus' ELSE 'minus' END
CAST(wi AS TEXT)
TRY_CAST(wi AS BIGINT)
TRY_CAST(wi AS INT)
CAST(wi AS DOUBLE)
nullif(wi, 7) IS NULL
