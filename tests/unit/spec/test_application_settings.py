"""Settings from defaults, a file and the environment."""

from __future__ import annotations

import json
import pickle
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from pydantic import ValidationError

import streamling
from streamling.errors import InvalidPipeline, StreamlingError, UserError, Where
from streamling.spec.mask import mask_url
from streamling.spec.secret import Secret
from streamling.spec.settings import LoadedSettings, Settings, load_settings


class Place:
    """A directory to start in."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def load(self, file: str | None = None, config: str | None = None, **environ: str) -> LoadedSettings:
        if file is not None:
            (self.path / "config.yaml").write_text(file)
        return load_settings(config=config, environ=environ, cwd=self.path)

    def settings(self, file: str | None = None, **environ: str) -> Settings:
        loaded = self.load(file, **environ)
        assert loaded.warnings == ()
        return loaded.settings

    def problems(self, file: str | None = None, **environ: str) -> list[StreamlingError]:
        with pytest.raises(InvalidPipeline) as caught:
            self.load(file, **environ)
        assert {error.code for error in caught.value.problems} == {"SETTING_INVALID"}
        return list(caught.value.problems)


@pytest.fixture
def here(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_without_a_file_everything_has_its_default(here: Place) -> None:
    settings = here.settings()
    assert settings == Settings()
    assert settings.application_id == "local_app_v1"
    assert settings.checkpoint_interval_sec == 5
    assert settings.state_backend.backend_type == "Sqlite"
    assert settings.state_backend.postgres.sslmode == "require"
    assert settings.state_backend.postgres.acquire_timeout_secs == 5
    assert settings.kafka_source.schema_registry_url == "http://localhost:18081"
    assert settings.clickhouse_source.page_size == 10_000_000
    assert settings.postgres_sink.batch_flush_interval == timedelta(seconds=1)
    assert settings.postgres_sink.sslmode == "disable"
    assert settings.runtime.shutdown_budget_secs == 25
    assert settings.epoch.bytes == 67_108_864


def test_the_environment_wins_over_the_file_key_by_key(here: Place) -> None:
    settings = here.settings(
        "state_backend:\n  backend_type: Postgres\n  postgres: {host: file, user: file}\n",
        STREAMLING__STATE_BACKEND__POSTGRES__HOST="env",
    )
    assert settings.state_backend.backend_type == "Postgres"
    assert (settings.state_backend.postgres.host, settings.state_backend.postgres.user) == ("env", "file")
    assert settings.state_backend.postgres.db == "streamling"


def test_names_and_words_ignore_case(here: Place) -> None:
    settings = here.settings(
        "State_Backend: {BACKEND_TYPE: INMEMORY}\n", streamling__drain_policy="FAST", STREAMLING__Job_Mode="Yes"
    )
    assert settings.state_backend.backend_type == "InMemory"
    assert settings.drain_policy == "fast"
    assert settings.job_mode is True


@pytest.mark.parametrize(
    ("word", "meant"), [("1", True), ("ON", True), ("yes", True), ("0", False), ("Off", False), ("no", False)]
)
def test_booleans_have_four_spellings(here: Place, word: str, meant: bool) -> None:
    assert here.settings(STREAMLING__JOB_MODE=word).job_mode is meant


def test_a_file_gives_the_text_that_was_written(here: Place) -> None:
    settings = here.settings(
        "application_id: 007\nstate_backend: {postgres: {password: 0123}}\nrecord_batch_size: '5'\n"
    )
    assert settings.application_id == "007"
    assert settings.state_backend.postgres.password.reveal() == "0123"
    assert settings.record_batch_size == 5


def test_an_empty_value_is_a_value_and_nothing_is_none(here: Place) -> None:
    settings = here.settings(
        "kafka_source: {client_id: }\nlog_format:\n", STREAMLING__KAFKA_SOURCE__CONSUMER_GROUP_ID=""
    )
    assert settings.kafka_source.consumer_group_id == ""
    assert settings.kafka_source.client_id is None
    assert settings.log_format == "text"


@pytest.mark.parametrize("name", ["config", "config.yaml", "config.yml", "config.json"])
def test_the_default_file_may_have_a_usual_suffix(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text('{"application_id": "a"}')
    loaded = load_settings(config=None, environ={}, cwd=tmp_path)
    assert loaded.settings.application_id == "a"
    assert loaded.file == tmp_path / name


def test_an_exact_name_wins_over_a_suffix(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("application_id: exact")
    (tmp_path / "mine.yaml").write_text("application_id: suffix")
    assert load_settings(config="mine", environ={}, cwd=tmp_path).settings.application_id == "exact"


def test_a_named_file_must_exist(here: Place) -> None:
    with pytest.raises(UserError) as caught:
        here.load(config="nothere.yaml")
    assert caught.value.code == "CONFIG_FILE"
    assert "nothere.yaml" in caught.value.message


@pytest.mark.parametrize("text", ["a: [", "- a", "text", "a: 1\na: 2"])
def test_a_file_that_cannot_be_parsed_is_refused(here: Place, text: str) -> None:
    with pytest.raises(UserError) as caught:
        here.load(text)
    assert caught.value.code == "CONFIG_FILE"
    assert caught.value.where is not None
    assert caught.value.where.file == "config.yaml"


def test_an_empty_file_says_nothing(here: Place) -> None:
    assert here.settings("# nothing\n") == Settings()


def test_unknown_keys_are_reported_with_the_nearest_known_one(here: Place) -> None:
    loaded = here.load("record_batch_sise: 5\n", STREAMLING__STATE_BACKEND__POSTGRES__PASWORD="x", STREAMLING__ZZZ="1")
    assert loaded.warnings == (
        "unknown setting 'record_batch_sise' (config.yaml:1:1) is ignored; did you mean 'record_batch_size'?",
        "unknown setting 'state_backend.postgres.pasword' (STREAMLING__STATE_BACKEND__POSTGRES__PASWORD) is ignored; "
        "did you mean 'state_backend.postgres.password'?",
        "unknown setting 'zzz' (STREAMLING__ZZZ) is ignored",
    )


def test_a_test_block_and_keys_of_plugins_are_not_unknown(here: Place) -> None:
    settings = here.settings(
        "test_settings: {prometheus_sleep_ms: 5}\nplugin: {Queue: {Url: u}}\n", STREAMLING__PLUGIN__QUEUE__API_KEY="k"
    )
    assert {key: secret.reveal() for key, secret in settings.plugin.own["queue"].items()} == {
        "url": "u",
        "api_key": "k",
    }


@pytest.mark.parametrize(
    ("file", "part"),
    [
        ("record_batch_size: many", "'record_batch_size' must be a whole number, not 'many'"),
        ("record_batch_size: 1.5", "'record_batch_size' must be a whole number"),
        ("job_mode: maybe", "'job_mode' must be true or false, not 'maybe'"),
        ("drain_policy: slow", "'drain_policy' is 'slow'; accepted: auto, drain, fast"),
        ("state_backend: sqlite", "'state_backend' must be a map"),
        ("application_id: {a: 1}", "'application_id' is a single value"),
        ("application_id: [a]", "'application_id' must be text, not a list"),
        ("clickhouse_sink: {batch_flush_interval: 5}", "'clickhouse_sink.batch_flush_interval' is '5'"),
        ("postgres_sink: {batch_flush_interval: soon}", "'postgres_sink.batch_flush_interval' is 'soon'"),
        ("clickhouse_sink: {compression_level: 10}", "'clickhouse_sink.compression_level' must be at most 9"),
        ("clickhouse_source: {sort_key_range: 99}", "at least 100"),
        ("postgres_sink: {port: 70000}", "'postgres_sink.port' must be at most 65535"),
        ("postgres_sink_connections: {a: x}", "'postgres_sink_connections.a' must be a map"),
        ("kafka_sink: {security_protocol: Sasl_SSL, sasl_mechanism: PLAIN}", "'kafka_sink.sasl_username' is required"),
        ("spark: fast", "'spark' must be a map"),
    ],
)
def test_a_value_that_cannot_be_used_is_named_with_its_place(here: Place, file: str, part: str) -> None:
    (error,) = here.problems(file)
    assert part in error.message
    assert error.where is None or error.where.file == "config.yaml"


def test_all_bad_values_are_reported_at_once(here: Place) -> None:
    found = here.problems(
        "job_mode: x\nepoch: {rows: 0}\n", STREAMLING__ADMIN_API_PORT="x", STREAMLING__SHUTDOWN_BUDGET_SECS="0"
    )
    assert len(found) == 4
    texts = " ".join(error.message for error in found)
    assert "(from STREAMLING__ADMIN_API_PORT)" in texts
    assert "STREAMLING__SHUTDOWN_BUDGET_SECS must be greater than 0" in texts


def test_a_bad_value_has_its_place(here: Place) -> None:
    (error,) = here.problems("epoch:\n  rows: x\n")
    assert error.where == Where("config.yaml", 2, 9)


def test_lists_are_lists_or_texts_with_commas(here: Place) -> None:
    settings = here.settings("plugin: {preprocessor_ids: [a, ' b ']}\n", STREAMLING__PLUGIN__SIDE_OUTPUT_IDS=" c,, d ")
    assert settings.plugin.preprocessor_ids == ("a", "b")
    assert settings.plugin.side_output_ids == ("c", "d")


def test_variables_set_options_a_file_wrote_with_case(here: Place) -> None:
    settings = here.settings(
        "plugin: {preprocessor_options: {MyId: {Opt: 1, other: 2}}}\n",
        STREAMLING__PLUGIN__PREPROCESSOR_OPTIONS__MYID__OPT="3",
    )
    assert settings.plugin.preprocessor_options == {"MyId": {"Opt": "3", "other": "2"}}


def test_secrets_are_found_by_normalised_name(here: Place) -> None:
    settings = here.settings("http_secret_header: {CRM-Token: X-Key}\n", STREAMLING__HTTP_SECRET_VALUE__CRM_TOKEN="s")
    assert settings.http_secret_header["crm_token"].reveal() == "X-Key"
    assert settings.http_secret_value["crm_token"].reveal() == "s"


def test_a_sink_may_have_its_own_connection(here: Place) -> None:
    settings = here.settings(
        "postgres_sink: {host: common, pass: p}\npostgres_sink_connections: {My.Sink: {port: 99}}\n",
        STREAMLING__POSTGRES_SINK_CONNECTIONS__MY_SINK__SSLMODE="",
    )
    own = settings.postgres_connection("my--sink")
    assert (own.host, own.port, own.pass_.reveal(), own.sslmode) == ("common", 99, "p", None)
    assert settings.postgres_connection("other") is settings.postgres_sink


def test_an_alias_of_a_key_is_the_key(here: Place) -> None:
    assert here.settings(STREAMLING__CLICKHOUSE_SOURCE__BLOCK_RANGE="500").clickhouse_source.sort_key_range == 500


@pytest.mark.parametrize(
    ("file", "part"),
    [
        ("kafka_sorce: {}", "'kafka_sorce' (config.yaml:1:1) is ignored; did you mean 'kafka_source'?"),
        ("kafka_sorce:", "'kafka_sorce' (config.yaml:1:1) is ignored; did you mean 'kafka_source'?"),
        ("kafka_source: {borkers: }", "'kafka_source.borkers' (config.yaml:1:16) is ignored; did you mean"),
        ("kafka_sorce: {brokers: x}", "did you mean 'kafka_source.brokers'?"),
        ("postgres_sink: {pasword: x}", "did you mean 'postgres_sink.pass'?"),
        ("postgres_sink_connections: {s: {password: x}}", "did you mean 'postgres_sink_connections.s.pass'?"),
        ("state_backend: {postgres: {pass: x}}", "did you mean 'state_backend.postgres.password'?"),
        ("state_backend.backend_type: x", "dots do not nest keys: write 'backend_type' under 'state_backend:'"),
        ("spark.sql.x: 1", "dots do not nest keys: write 'sql.x' under 'spark:'"),
        (
            "job_mode: true\nJob_Mode: false",
            "'Job_Mode' (config.yaml:2:1) is the same setting as 'job_mode' (config.yaml:1:1), which is ignored",
        ),
    ],
)
def test_a_slip_in_a_key_is_answered_with_the_right_one(here: Place, file: str, part: str) -> None:
    [warning] = here.load(file + "\n").warnings
    assert part in warning


def test_what_is_nothing_like_a_key_gets_no_hint(here: Place) -> None:
    assert here.load("plugin: {nope: x}\n").warnings == ("unknown setting 'plugin.nope' (config.yaml:1:10) is ignored",)
    [problem] = here.problems("kafka_source: {security_protocol: xsaslx}\n")
    assert problem.hint is None


def test_empty_blocks_that_are_known_say_nothing(here: Place) -> None:
    loaded = here.load("kafka_source: {}\nspark:\nplugin: {p: {}}\npostgres_sink_connections: {s: {}}\n")
    assert loaded.warnings == ()
    assert (loaded.settings.spark, loaded.settings.kafka_source) == ({}, Settings().kafka_source)


def test_variables_of_the_telemetry_project_win(here: Place) -> None:
    settings = here.settings(
        STREAMLING__OPEN_TELEMETRY_METRICS__INGESTION_ENDPOINT="http://a",
        OTEL_EXPORTER_OTLP_METRICS_ENDPOINT="http://b",
    )
    assert settings.open_telemetry_metrics.ingestion_endpoint == "http://b"


def test_some_settings_come_from_the_environment_only(here: Place) -> None:
    loaded = here.load(
        "shutdown_budget_secs: 9\n",
        STREAMLING__SHUTDOWN_BUDGET_SECS="4",
        streamling__kafka_source__stall_watchdog_timeout_sec="7",
        RUST_LOG="debug",
        POD_NAME="pod-1",
    )
    runtime = loaded.settings.runtime
    assert (runtime.shutdown_budget_secs, runtime.stall_watchdog_timeout_sec) == (4, 7)
    assert (runtime.log_filter, runtime.pod_name) == ("debug", "pod-1")
    assert loaded.settings.state_backend.postgres.acquire_timeout_secs == 2
    assert "set STREAMLING__SHUTDOWN_BUDGET_SECS instead" in loaded.warnings[0]


def test_an_open_admin_api_needs_a_token_or_consent(here: Place) -> None:
    open_ = {"STREAMLING__LIVE_DATA_INSPECT_ENABLED": "true", "STREAMLING__ADMIN_API_HOST": "0.0.0.0"}
    (error,) = here.problems(**open_)
    assert "STREAMLING__ADMIN_API_HOST" in error.message
    here.settings(**open_, STREAMLING__ADMIN_API_TOKEN="t")
    here.settings(**open_, STREAMLING__ADMIN_API_INSECURE="true")
    (error,) = here.problems(**open_, STREAMLING__ADMIN_API_TOKEN=" \n")
    assert "without a token" in error.message


def test_a_program_cannot_open_the_admin_api_by_accident_either() -> None:
    given = {"admin_api_enabled": True, "runtime": {"admin_api_host": "0.0.0.0"}}
    for settings in (given, Settings.model_validate(given)):
        with pytest.raises(InvalidPipeline, match="without a token"):
            streamling.Session(settings)


def test_spark_settings_get_their_full_names(here: Place) -> None:
    settings = here.settings(
        'spark: {master: "local[2]", "sql.shuffle.partitions": 4, driver: {memory: 1g}, sql: {caseSensitive: true},'
        " spark.ui.enabled: false, jars: [a.jar, b.jar]}\n",
        STREAMLING__SPARK__DRIVER__MEMORY="2g",
        STREAMLING__SPARK__DRIVER__BINDADDRESS="0.0.0.0",
        STREAMLING__SPARK__SQL__CASESENSITIVE="false",
        STREAMLING__SPARK__SOME__PLUGIN__OPTION="x",
    )
    assert settings.spark == {
        "spark.master": "local[2]",
        "spark.sql.shuffle.partitions": "4",
        "spark.driver.memory": "2g",
        "spark.sql.caseSensitive": "false",
        "spark.ui.enabled": "false",
        "spark.jars": "a.jar,b.jar",
        "spark.driver.bindAddress": "0.0.0.0",
        "spark.some.plugin.option": "x",
    }


def test_settings_are_frozen_and_travel(here: Place) -> None:
    settings = here.settings(STREAMLING__POSTGRES_SINK__PASS="secret")
    with pytest.raises(ValidationError):
        settings.application_id = "x"
    assert pickle.loads(pickle.dumps(settings)) == settings


def test_no_printed_form_shows_a_secret(here: Place) -> None:
    settings = here.settings(
        "http_secret_value: {a: topsecretvalue}\npostgres_sink: {pass: topsecretpass}\n"
        "kafka_source: {sasl_password: short}\nspark: {ssl.keyPassword: topsecretkey}\nplugin: {q: {k: topsecretopt}}\n"
        "clickhouse_sink: {url: 'http://u:topsecreturl@h:1'}\n",
        STREAMLING__ADMIN_API_TOKEN="topsecrettoken",
    )
    masked = settings.masked()
    assert masked["postgres_sink"]["pass"] == "*****tpass"
    assert masked["kafka_source"]["sasl_password"] == "*****"
    assert masked["http_secret_value"] == {"a": "*****"}
    assert masked["postgres_sink"]["batch_flush_interval"] == "1s"
    assert "topsecret" not in json.dumps(masked)
    printed = repr(settings.postgres_sink) + str(settings.http_secret_value) + f"{settings.runtime}"
    assert "secret" not in printed.replace("Secret", "")
    assert "topsecretpass" not in settings.model_dump_json()


def test_a_secret_shows_itself_only_when_asked() -> None:
    secret = Secret("hunter2hunter2")
    assert f"{secret} {secret!r}" == "***** Secret('*****')"
    assert secret.reveal() == "hunter2hunter2"
    assert secret.masked() == "*****nter2"


def test_a_url_keeps_all_but_its_password() -> None:
    assert mask_url("http://u:p@a, https://b/c") == "http://u:*****@a, https://b/c"


KEYS = [
    "STATE_BACKEND",
    "POSTGRES",
    "PORT",
    "SPARK",
    "PLUGIN",
    "HTTP_SECRET_VALUE",
    "POSTGRES_SINK_CONNECTIONS",
    "A",
    "JOB_MODE",
    "PREPROCESSOR_OPTIONS",
    "KAFKA_SINK",
    "SECURITY_PROTOCOL",
    "",
]


@hypothesis_settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    environ=st.dictionaries(
        st.lists(st.sampled_from(KEYS), min_size=1, max_size=4).map(lambda parts: "STREAMLING__" + "__".join(parts)),
        st.sampled_from(["", "1", "x", "true", "SASL_SSL", "a,b", "{}"]),
        max_size=6,
    ),
    file=st.recursive(
        st.sampled_from(["1", "x", None, True, 2.5]),
        lambda inner: (
            st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from([k.lower() for k in KEYS]), inner, max_size=3)
        ),
        max_leaves=8,
    ),
)
def test_any_layers_give_settings_or_an_error_of_ours(tmp_path: Path, environ: dict[str, str], file: object) -> None:
    (tmp_path / "config.json").write_text(json.dumps(file))
    try:
        load_settings(config=None, environ=environ, cwd=tmp_path)
    except UserError as error:
        assert error.code in {"SETTING_INVALID", "CONFIG_FILE"}
