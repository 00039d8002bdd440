"""Calls of the Kafka client that neither hang nor raise what Python cannot catch."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

Result = TypeVar("Result")


def guarded(action: Callable[[], Result]) -> Result:
    """Call the client. Raises KafkaException also if the client has ended itself: then it raises its KafkaError, which
    is not an exception of Python. Only a bare `except` catches that, and nothing may be raised in there."""
    from confluent_kafka import KafkaError, KafkaException

    try:
        return action()
    except SystemError as raised:  # it has called back with its error set
        error = KafkaError(KafkaError._FATAL, str(raised.__cause__ or raised), fatal=True)
    except BaseException:
        raise
    except:  # noqa: E722
        error = sys.exc_info()[1]
    raise KafkaException(error)


def call_within(seconds: float, action: Callable[[], object]) -> None:
    """Call the client, at most for so long: if a broker goes away, some of its calls exceed the timeout they are given.

    A call that has not returned is left to a thread of its own.
    """
    outcome: Future[object] = Future()

    def call() -> None:
        try:
            outcome.set_result(guarded(action))
        except BaseException as error:
            outcome.set_exception(error)

    threading.Thread(target=call, name="kafka transaction", daemon=True).start()
    outcome.result(seconds)
