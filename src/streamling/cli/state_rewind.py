"""`streamling state rewind`: shows what the rewind changes, asks, and does it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING

from streamling.cli.options import Common, pipeline_file, settings_of
from streamling.cli.quantities import number_of

if TYPE_CHECKING:
    from streamling.connector import Sink
    from streamling.engine.preparation import PreparedPipeline
    from streamling.engine.protocol.rewind import Move, Rewind
    from streamling.engine.protocol.state import StateStore
    from streamling.spec.settings import Settings


def rewind_positions(common: Common, file: str | None, sink: str, *, confirmed: bool) -> int:
    from streamling.cli.state import ask
    from streamling.engine.preparation import prepare
    from streamling.engine.protocol.rewind import apply_rewind, plan_rewind
    from streamling.engine.protocol.state import open_state

    loaded = settings_of(common, level="warn")
    settings = loaded.settings
    prepared = prepare(pipeline_file(file, loaded), settings)
    with ExitStack() as stack:
        store = open_state(settings)
        stack.callback(store.close)
        sinks = _open_sinks(stack, prepared, settings, store)
        rewind = plan_rewind(store, sinks, sink.lower())
        if not rewind:
            print(f"the stored positions are those of sink '{sink}': there is nothing to rewind")
            return 0
        for line in _describe(rewind, prepared, sinks):
            print(line)
        if not confirmed and (code := ask(f"rewind {settings.application_id!r}?")):
            return code
        apply_rewind(store, sinks, rewind)
        print("rewound; the next run continues from there")
    return 0


def _open_sinks(stack: ExitStack, prepared: PreparedPipeline, settings: Settings, store: StateStore) -> dict[str, Sink]:
    """The exactly-once sinks, opened."""
    from streamling.connector import Guarantee, Runtime, SinkContext
    from streamling.engine.protocol.state import generation
    from streamling.telemetry.metrics import Metrics

    application, sinks = settings.application_id, {}
    for node in prepared.plan.sinks:
        sink = prepared.sinks[node.ref]
        if sink.capabilities.guarantee is not Guarantee.EXACTLY_ONCE:
            continue
        sink.attach(Runtime(application, store, Metrics()))
        stack.callback(sink.close)
        sink.open(SinkContext(node.ref, application, generation(store), node.schema, node.primary_key, node.width))
        sinks[node.ref] = sink
    return sinks


def _describe(rewind: Rewind, prepared: PreparedPipeline, sinks: Mapping[str, Sink]) -> Iterator[str]:
    """What changes for the state and for every sink, a line each."""
    for move in rewind.moves:
        yield f"{move.key}: {_distance(move)}, from {json.dumps(move.before)} to {json.dumps(move.after)}"
    for node in prepared.plan.sinks:
        name = node.spec.name
        if node.ref == rewind.sink:
            yield f"sink '{name}': gets the rows after these positions"
        elif node.ref in rewind.others:
            repeated = ", ".join(_distance(move) for move in rewind.others[node.ref])
            effect = (
                "they will be there TWICE" if sinks[node.ref].doubles else "they have the same keys and replace them"
            )
            yield f"sink '{name}': has these rows already ({repeated}); {effect}"
        elif node.ref in sinks and sinks[node.ref].ledger() is None:
            yield f"sink '{name}': does not show its ledger and is not rewound; give it a new name before the next run"
        elif node.ref in sinks:
            yield f"sink '{name}': its ledger agrees, nothing changes"
        else:
            yield f"sink '{name}': gets rows again that it may have, as it has no ledger"


def _distance(move: Move) -> str:
    rows = move.rows
    if rows is None:
        return "a distance that cannot be told"
    return f"{number_of(abs(rows), 'row')} {'back' if rows < 0 else 'forward'}"
