"""Rows keep their order as long as none moves to another partition: shuffles are refused, broadcasts are not."""

from __future__ import annotations

import pytest

from streamling.engine.data.steps.query import has_shuffle

SHUFFLED = """\
*(2) Project [id#1L]
+- *(2) BroadcastHashJoin [id#1L], [id#2L], ExistenceJoin(exists#3), BuildRight, false
   :- *(1) Scan ExistingRDD arrow[id#1L]
   +- Exchange hashpartitioning(id#2L, 2), ENSURE_REQUIREMENTS, [plan_id=8]
"""
BROADCAST = """\
*(2) Project [id#1L, exists#3 AS known#4]
+- *(2) BroadcastHashJoin [id#1L], [id#2L], ExistenceJoin(exists#3), BuildRight, false
   :- *(2) Scan ExistingRDD arrow[id#1L]
   +- BroadcastExchange HashedRelationBroadcastMode(List(input[0, bigint, false]),false), [plan_id=8]
      +- *(1) Scan ExistingRDD arrow[id#2L]
"""
REUSED = """\
+- ReusedExchange [id#9L], BroadcastExchange HashedRelationBroadcastMode(List(input[0, bigint, false]),false)
"""
NAMED = """\
*(1) Project [Exchange#1, concat(Exchange, b#2) AS Exchange#3]
+- *(1) Filter (Exchange#1 = Exchange )
   +- *(1) Scan ExistingRDD arrow[Exchange#1,b#2]
"""


@pytest.mark.parametrize(
    "plan", [SHUFFLED, REUSED.replace("BroadcastExchange Hashed", "Exchange hashpartitioning Hashed")]
)
def test_a_shuffle_is_found(plan: str) -> None:
    assert has_shuffle(plan)


@pytest.mark.parametrize("plan", [BROADCAST, REUSED, NAMED])
def test_a_broadcast_is_no_shuffle_and_a_name_is_neither(plan: str) -> None:
    assert not has_shuffle(plan)
