"""Dead letters: rows that could not be delivered, stored with their place in the source and the reason.

`letter` is what is stored of a row, `store` where: files, a Postgres table, or a Kafka topic.
"""
