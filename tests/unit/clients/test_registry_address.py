"""The address of the schema registry may hold a password, which no message shows."""

from __future__ import annotations

import pytest

from streamling.clients.schema_registry import SchemaRegistry
from streamling.errors import PermanentError
from streamling.spec.settings.blocks import KafkaSourceSettings


@pytest.mark.parametrize("url", ["nonsense", "http://ann:hidden#@localhost:1"])
def test_an_address_that_is_none_is_refused_without_its_password(url: str) -> None:
    with SchemaRegistry(KafkaSourceSettings(schema_registry_url=url), timeout=1) as registry:
        with pytest.raises(PermanentError, match="is not a valid URL") as caught:
            registry.latest("orders-value")
    assert "hidden" not in f"{caught.value.message} {caught.value.__cause__}"
