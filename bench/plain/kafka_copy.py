"""The bare copy: records taken from the client in large chunks and sent on as they are, key and header with them.

Prints how many there were, and the seconds from the first chunk to the last acknowledgement.
"""

import sys
import time

from confluent_kafka import Consumer, Producer, TopicPartition

brokers, topic, target, rows = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
settings = {"group.id": "bare", "enable.auto.commit": False, "fetch.queue.backoff.ms": 10}
consumer = Consumer({"bootstrap.servers": brokers, **settings})
consumer.assign([TopicPartition(topic, 0, 0)])
sending = {"enable.idempotence": True, "linger.ms": 200, "compression.type": "lz4", "batch.num.messages": 10_000}
quiet = {"delivery.report.only.error": True, "queue.buffering.max.messages": 500_000}
producer = Producer({"bootstrap.servers": brokers, **sending, **quiet})
messages = consumer.consume(1, 30)
found = 0
began = time.perf_counter()
while True:
    for message in messages:
        while True:
            try:
                # By position, which is faster.
                producer.produce(target, message.value(), message.key(), -1, None, None, 0, message.headers())
                break
            except BufferError:
                producer.poll(0.05)
    found += len(messages)
    if found >= rows:
        break
    messages = consumer.consume(min(50_000, rows - found), 1.0)
if producer.flush(120):
    raise SystemExit("the broker did not take all records")
print(f"{found} {time.perf_counter() - began:.3f}", flush=True)
consumer.close()
