"""The bare loop: records taken from the client in large chunks and dropped; neither decoded nor looked at.

Prints how many there were, and the seconds from the first chunk to the last.
"""

import sys
import time

from confluent_kafka import Consumer, TopicPartition

brokers, topic, rows = sys.argv[1], sys.argv[2], int(sys.argv[3])
# By default the client pauses for a second whenever its queue is full, which would hold the loop up.
settings = {"group.id": "bare", "enable.auto.commit": False, "fetch.queue.backoff.ms": 10}
consumer = Consumer({"bootstrap.servers": brokers, **settings})
consumer.assign([TopicPartition(topic, 0, 0)])
found = len(consumer.consume(1, 30))
began = time.perf_counter()
while found < rows:
    found += len(consumer.consume(min(50_000, rows - found), 1.0))
print(f"{found - 1} {time.perf_counter() - began:.3f}", flush=True)
consumer.close()
