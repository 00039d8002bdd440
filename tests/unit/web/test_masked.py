"""Options and positions without secrets, and with everything else."""

from __future__ import annotations

from typing import Any

from streamling.connector import kinds
from streamling.spec.mask import mask_text
from streamling.spec.pipeline import load_pipeline
from streamling.spec.pipeline.plugin_options import PluginSinkOptions
from streamling.web.masked import masked_options, masked_positions


def options_of(text: str) -> dict[str, Any]:
    """The options of the only source."""
    (source,) = load_pipeline(f"sources:\n  numbers: {text}\n", "p.yaml", kinds.kinds()).nodes
    return masked_options(source.options)


def test_secrets_of_plugins_are_masked_however_deep_they_are() -> None:
    options = PluginSinkOptions.model_validate(
        {
            "type": "queue",
            "from": "a",
            "api_key": "QX7Z-1",
            "broker": "amqp://user:QX7Z-2@host/path?token=QX7Z-3",
            "servers": [{"name": "one", "password": "QX7Z-4"}, "user:QX7Z-5@host"],
            "options": {"headers": {"X-Own": "QX7Z-6"}, "dsn": "host=h password=QX7Z-7", "batch": 5, "secure": True},
        }
    )
    shown = masked_options(options)
    assert "QX7Z" not in str(shown)
    assert shown["servers"][0]["name"] == "one"
    assert (shown["options"]["batch"], shown["options"]["secure"]) == (5, True)
    assert shown["broker"].startswith("amqp://user:*****@host/")


def test_columns_whose_names_sound_secret_are_shown() -> None:
    shown = options_of("{type: generator, columns: {id: id, token_id: id + 1, secret: id * 2}, primary_key: id}")
    assert shown["columns"] == {"id": "id", "token_id": "id + 1", "secret": "id * 2"}


def test_secrets_in_options_of_plugins_are_masked_in_every_text() -> None:
    load_pipeline(
        """\
sources: {numbers: {type: generator, primary_key: id}}
sinks:
  out:
    type: print
    from: numbers
  queue:
    type: queue
    from: numbers
    url: amqp://user:QZ7x-url@host
    options: {nested: {credentials: [{value: QZ7x-deep}]}}
    api_key: QZ7x-flat
""",
        "p.yaml",
        {**kinds.kinds(), **_queue()},
    )
    assert mask_text("login with QZ7x-url, QZ7x-deep and QZ7x-flat failed") == (
        "login with *****, ***** and ***** failed"
    )


def _queue() -> dict[Any, Any]:
    from streamling.spec.pipeline import Role

    return {(Role.SINK, "queue"): PluginSinkOptions}


def test_positions_are_shown_whatever_their_source_is_called() -> None:
    stored = {"token_transfers:topic:0": {"offset": 7, "page_token": "abc"}, "db": "http://u:QX7Z-8@host/cursor"}
    assert masked_positions(stored) == {
        "token_transfers:topic:0": {"offset": 7, "page_token": "*****"},
        "db": "http://u:*****@host/cursor",
    }
