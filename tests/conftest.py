"""What the tests of a process share: servers, and an engine that is warm. Each starts when the first test asks for it,
and ends with the last."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import settings

from streamling.dev.stack import Stack
from support.clickhouse_server import ClickHouseServer
from support.harness import Workspace, workspace
from support.kafka_broker import KafkaBroker
from support.local_stack import local_stack
from support.pgbouncer_server import NotToBeHad, PgBouncer, pgbouncer
from support.postgres_server import PostgresServer
from support.schema_registry import SchemaRegistry
from support.secure_servers import SecureServers, secure_servers
from support.warm_engine import WarmEngine

# An example may take long because another test keeps the machine busy.
settings.register_profile("tests", deadline=None)
settings.load_profile("tests")


@pytest.fixture(scope="session")
def warm_engine() -> Iterator[WarmEngine]:
    engine = WarmEngine()
    yield engine
    engine.close()


@pytest.fixture
def place(tmp_path: Path, warm_engine: WarmEngine) -> Iterator[Workspace]:
    """An empty workspace."""
    with workspace(tmp_path, warm_engine) as made:
        yield made


@pytest.fixture(scope="session")
def shared_stack() -> Iterator[Stack]:
    with local_stack() as stack:
        yield stack


@pytest.fixture(scope="session")
def kafka(shared_stack: Stack) -> KafkaBroker:
    """Topics are for each test its own; a test that stops the broker starts it again."""
    return KafkaBroker(shared_stack)


@pytest.fixture(scope="session")
def schema_registry(shared_stack: Stack) -> SchemaRegistry:
    """Subjects are for all tests the same ones; take new names."""
    return SchemaRegistry(shared_stack)


@pytest.fixture(scope="session")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureServers]:
    """A broker and a registry apart from the others."""
    with secure_servers(tmp_path_factory.mktemp("certificates")) as started:
        yield started


@pytest.fixture(scope="session")
def postgres(shared_stack: Stack) -> PostgresServer:
    """Databases are for each test its own; a test that stops the server starts it again."""
    return PostgresServer(shared_stack)


@pytest.fixture(scope="session")
def clickhouse(shared_stack: Stack) -> ClickHouseServer:
    """Databases are for each test its own; a test that stops the server starts it again."""
    return ClickHouseServer(shared_stack)


@pytest.fixture(scope="session")
def pooler(postgres: PostgresServer) -> Iterator[PgBouncer]:
    """Before the same server. A test that kills it starts it again."""
    with ExitStack() as stack:
        try:
            started = stack.enter_context(pgbouncer(postgres))
        except NotToBeHad as error:
            pytest.skip(str(error))
        yield started
