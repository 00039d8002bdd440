"""A real ClickHouse for tests, and databases of their own."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass
from typing import Any

import httpx

from streamling.dev.clickhouse import USER
from streamling.dev.passwords import read_password
from streamling.dev.stack import Stack
from support.local_stack import LocalServer

READER, READER_PASSWORD = "reader", "quite secret"
# May do what a source has to do, and nothing else: not even change a setting.
_READER = f"""<clickhouse>
  <profiles><reading><readonly>1</readonly></reading></profiles>
  <users>
    <{READER}>
      <password>{READER_PASSWORD}</password><networks><ip>127.0.0.1</ip></networks>
      <profile>reading</profile><quota>default</quota>
      <grants><query>GRANT SELECT ON shop.*</query></grants>
    </{READER}>
  </users>
</clickhouse>
"""


class ClickHouseServer(LocalServer):
    """A running server that many tests share; who stops, kills or pauses it brings it back.

    `url` is what `clickhouse_source.url` takes. `READER` may read the database `shop`.
    """

    def __init__(self, stack: Stack) -> None:
        super().__init__(stack, "clickhouse")
        self.url = f"http://127.0.0.1:{self._port}"
        self.user, self.password = USER, read_password(self.site)
        more_users = self.site.directory / "users.d" / "reader.xml"
        more_users.parent.mkdir()
        more_users.write_text(_READER)
        self.restart()
        self.execute("CREATE DATABASE IF NOT EXISTS shop")

    def database(self) -> str:
        """A new one, empty. A test that failed may have left the server stopped; then it is started."""
        self.start()
        name = f"test_{uuid.uuid4().hex[:12]}"
        self.execute(f"CREATE DATABASE {name}")
        return name

    def own_database(self) -> ClickHouseDatabase:
        """A new one, to which statements and pipelines are sent without its name."""
        return ClickHouseDatabase(self, self.database())

    def settings(self, database: str = "default", *, role: str = "SOURCE", url: str | None = None) -> dict[str, object]:
        """As a workspace takes them, for the ClickHouse nodes of a pipeline."""
        connection = {"URL": url or self.url, "USER": self.user, "PASSWORD": self.password, "DATABASE": database}
        return {f"CLICKHOUSE_{role}__{key}": value for key, value in connection.items()}

    def execute(self, query: str, **parameters: Any) -> str:
        """`parameters` of the request: settings of the server, and `database`."""
        answer = httpx.post(
            self.url, params=parameters, content=query.encode(), auth=(self.user, self.password), timeout=120
        )
        if not answer.is_success:
            raise RuntimeError(f"{query[:500]}: {answer.text}")
        return answer.text

    def rows(self, query: str, database: str = "default") -> list[tuple[Any, ...]]:
        """Numbers of more than 64 bits are text."""
        query = f"{query} FORMAT JSONCompact"
        answer = self.execute(query, database=database, output_format_json_quote_64bit_integers=0)
        return [tuple(row) for row in json.loads(answer)["data"]]


@dataclass(frozen=True)
class ClickHouseDatabase:
    """One database; it survives restarts of the server."""

    server: ClickHouseServer
    name: str

    def connection(self) -> dict[str, object]:
        """As `clickhouse_sink` of the settings."""
        server = self.server
        return {"url": server.url, "user": server.user, "password": server.password, "database": self.name}

    def settings(self, role: str = "SINK") -> dict[str, object]:
        """As a workspace takes them, for the ClickHouse nodes of a pipeline."""
        return self.server.settings(self.name, role=role)

    def execute(self, query: str) -> str:
        return self.server.execute(query, database=self.name)

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        return self.server.rows(query, self.name)
