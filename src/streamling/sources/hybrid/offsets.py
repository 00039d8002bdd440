"""The offset table: up to which offset the partitions of a topic are in ClickHouse."""

from __future__ import annotations

from streamling.clients.clickhouse import ClickHouse
from streamling.clients.clickhouse_errors import NO_SUCH_TABLE, ServerRefused
from streamling.errors import SOURCE_FAILED
from streamling.formats.clickhouse_syntax import quote_name
from streamling.sources.clickhouse.queries import ALIAS
from streamling.sources.hybrid.options import OffsetTable, UnboundedTopic
from streamling.spec.settings import Settings


class TopicOffsets:
    """Asks for the offsets of the topic of a hybrid source."""

    def __init__(self, topic: UnboundedTopic, table: OffsetTable | None, settings: Settings) -> None:
        """`table` None: the pipeline does not name one."""
        self._settings = settings
        self._is_declared = table is not None
        self.table = table or OffsetTable(topic_name=topic.topic.replace(".", "_"))

    def read(self, seconds: float) -> dict[str, int] | None:
        """The greatest offset by partition; None if there is no table and the pipeline does not name one.

        Raises StreamlingError, ServerRefused if the table cannot be used.
        """
        connection = self._settings.clickhouse_source
        with ClickHouse(
            connection, application_id=self._settings.application_id, timeout=seconds, condition=SOURCE_FAILED
        ) as server:
            try:
                rows = server.rows(self._query(), topic=self.table.topic_name)
            except ServerRefused as error:
                if error.number == NO_SUCH_TABLE and not self._is_declared:
                    return None
                raise
        return {str(int(partition)): int(offset) for partition, offset in rows}

    def _query(self) -> str:
        table = self.table
        database, dot, rest = table.table_name.partition(".")
        place = (database, rest) if dot else (self._settings.clickhouse_source.database, table.table_name)
        partition, offset = (f"toInt64({quote_name(name)})" for name in (table.partition_column, table.offset_column))
        return (
            f"SELECT toString({partition}) AS {ALIAS}partition, toString(max({offset})) "
            f"FROM {'.'.join(map(quote_name, place))} "
            f"WHERE {quote_name(table.topic_column)} = {{topic:String}} AND {offset} >= 0 GROUP BY {ALIAS}partition"
        )
