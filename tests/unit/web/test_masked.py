"""Options and positions without secrets, and with everything else."""

from __future__ import annotations

from typing import Any

import pytest

from streamling.connector import kinds
from streamling.spec.mask import mask_text
from streamling.spec.pipeline import load_pipeline
from streamling.spec.pipeline.plugin_options import PluginSinkOptions
from streamling.transforms.script import ScriptOptions
from streamling.web.masked import masked_options, masked_positions


def options_of(text: str) -> dict[str, Any]:
    """The options of the only source."""
    (source,) = load_pipeline(f"sources:\n  numbers: {text}\n", "p.yaml", kinds.kinds()).nodes
    return masked_options(source.options)


def script_options(script: str) -> ScriptOptions:
    fields = {"type": "script", "from": "a", "primary_key": "id", "language": "javascript", "schema": {"id": "int64"}}
    return ScriptOptions.model_validate({**fields, "script": script})


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


@pytest.mark.parametrize("name", ["auth", "basic_auth", "bearer", "pw", "db.pw", "creds", "sasl-auth"])
def test_short_names_of_secrets_are_known(name: str) -> None:
    options = PluginSinkOptions.model_validate({"type": "queue", "from": "a", "options": {name: "Bearer QX7Z-1"}})
    assert masked_options(options)["options"] == {name: "*****"}


@pytest.mark.parametrize("name", ["author", "authored_by", "bypass", "power", "npw", "sacred"])
def test_other_names_that_contain_them_are_no_secrets(name: str) -> None:
    options = PluginSinkOptions.model_validate({"type": "queue", "from": "a", "options": {name: "shown"}})
    assert masked_options(options)["options"] == {name: "shown"}


def test_secrets_in_programs_are_masked_and_the_rest_is_shown() -> None:
    script = (
        "const apiKey = 'QX7Z-1'; const o = {token: \"QX7Z-2\", 'password' : `QX7Z-3`, name: 'x'}; o.secret=='QX7Z-4'"
    )
    shown = masked_options(script_options(script))["script"]
    assert shown == "const apiKey = *****; const o = {token: *****, 'password' : *****, name: 'x'}; o.secret=*****"


@pytest.mark.parametrize("data", ["A" * 1_000_000, "a=" * 500_000, "a='" * 300_000, "a=`" * 300_001, '"\\\\' * 400_000])
def test_programs_with_much_data_are_shown_at_once(data: str) -> None:
    """Other threads of the process stand still while a text is searched."""
    assert len(masked_options(script_options(f"const data = '{data}'"))["script"]) > 100_000


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
