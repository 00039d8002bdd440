w > -1.52::decimal(10,2)
w < -1
w = 0
w > 0
w < 0
w >= 10
w > wi
wi > 9
wi < 10
wi = 999999999999999999
wi > -1
wi BETWEEN -1 AND 10
wi > 10::decimal(20,3)
CAST(wi AS TEXT)
TRY_CAST(wi AS SMALLINT)
