"""Texts that people write: pipelines, settings, SQL."""

from __future__ import annotations

from pathlib import Path
from random import Random

from ruamel.yaml import YAML

from fuzz.mutations import mutate_bytes, mutate_text
from fuzz.target import PLANTED, Target
from streamling.engine.preparation import check
from streamling.spec.settings import Settings, load_settings
from support.sql_samples import compiled

TESTS = Path(__file__).parents[1]


class Pipelines(Target):
    name = "pipeline"

    def __init__(self) -> None:
        super().__init__()
        folder = TESTS / "unit" / "plan"
        files = [
            *folder.glob("valid_pipelines/*"),
            *folder.glob("warned_pipelines/*.yaml"),
            *TESTS.parent.glob("examples/*.yaml"),
        ]
        self._seeds = [file.read_text() for file in sorted(files)]
        header = f"    headers:\n{PLANTED[1].decode()}"
        self._seeds.append(
            "sources:\n  rows: {type: generator, rows: 1, primary_key: id}\n"
            f"sinks:\n  hook:\n    type: webhook\n    from: rows\n    url: http://host/\n{header}"
        )
        self._seeds += self._seeds[-1:] * 10

    def make(self, random: Random) -> bytes:
        return mutate_text(random.choice(self._seeds), random, random.choice(self._seeds))

    def run(self, data: bytes) -> None:
        check(self.file("pipeline.yaml", data), Settings(), probe=False)


class SettingsFiles(Target):
    name = "settings"
    _SEED = f"""\
application_id: app
state_backend:
  backend_type: Postgres
  postgres: {{host: h, port: 5432, password: other, sslmode: require}}
kafka_source:
  brokers: a:9092,b:9092
  security_protocol: sasl_ssl
  sasl_mechanism: PLAIN
  sasl_username: u
  sasl_password: 'quoted'
clickhouse_sink:
{PLANTED[0].decode()}  url: http://host:8123
  batch_flush_interval: 1s
postgres_sink_connections:
  one: {{host: h, pass: p}}
plugin:
  preprocessor_ids: [a, b]
  queue: {{token: t}}
http_secret_value: {{crm: v}}
spark: {{driver.memory: 1g, hadoop: {{fs.s3a.secret.key: k}}}}
"""
    _NAMES = (
        "POSTGRES_SINK__PORT",
        "POSTGRES_SINK__PASS",
        "POSTGRES_SINK_CONNECTIONS__A__PORT",
        "PLUGIN__X__Y",
        "SPARK__MASTER",
        "EPOCH__ROWS",
        "KAFKA_SOURCE__BROKERS",
        "KAFKA_SOURCE__SECURITY_PROTOCOL",
        "HTTP_SECRET_VALUE__A",
        "STATE_BACKEND",
        "JOB_MODE",
        "SHUTDOWN_BUDGET_SECS",
        "ADMIN_API_HOST",
        "LOG_FORMAT",
        "NO_SUCH",
        "",
        "_",
        "A__",
        "PLUGIN",
        "SPARK",
    )

    def make(self, random: Random) -> bytes:
        file = mutate_text(self._SEED, random, self._SEED)
        names = random.sample(self._NAMES, random.choice((0, 0, 1, 3)))
        values = [mutate_bytes(random.choice((b"1", b"true", b"a,b", b"1s")), random) for _ in names]
        variables = b"".join(
            name.encode() + b"=" + value.replace(b"\0", b"") + b"\0" for name, value in zip(names, values, strict=True)
        )
        return variables + b"\0\0" + file if variables else file

    def run(self, data: bytes) -> None:
        variables, mark, file = data.partition(b"\0\0\0")
        if not mark:
            variables, file = b"", data
        pairs = [entry.decode(errors="replace").partition("=") for entry in variables.split(b"\0") if entry]
        environ = {f"STREAMLING__{name}": value for name, _, value in pairs}
        self.file("config.yaml", file)
        loaded = load_settings(config=None, environ=environ, cwd=self.directory)
        repr(loaded.settings)
        loaded.settings.masked()


class Sql(Target):
    """Queries over columns of every type, compiled as the planner does it."""

    name = "sql"

    def __init__(self) -> None:
        super().__init__()
        folder = TESTS / "unit" / "sql"
        wrong = YAML(typ="safe").load(folder / "wrong_queries.yaml")
        self._seeds = [entry["sql"] for entry in wrong]
        for file in sorted(folder.glob("expressions/*/*.sql")):
            lines = [line for line in file.read_text().splitlines() if line.strip() and not line.startswith("--")]
            self._seeds += [f"SELECT {line.rstrip(',;')} AS x FROM orders" for line in lines]

    def make(self, random: Random) -> bytes:
        return mutate_text(random.choice(self._seeds), random, random.choice(self._seeds))

    def run(self, data: bytes) -> None:
        compiled(data.decode(errors="replace"))
