package org.apache.spark.sql.execution.streaming.state.cowstate.scripts

import java.sql.Timestamp

import org.apache.spark.sql.{DataFrame, Encoder, Encoders, KeyValueGroupedDataset, Row}
import org.apache.spark.sql.streaming.{GroupState, GroupStateTimeout, OutputMode}

/**
 * The operators that keep an object of the user's per key, over the events of `provider_inputs`.
 *
 * Only the Scala API has them. State and output are tuples: the encoder of a class of this jar
 * would be sought in Spark's own class loader.
 */
final class GroupStateOperators {
  import GroupStateOperators._

  /** What each key had, if anything, and what it has now. */
  def flatMapped(events: DataFrame, timeout: String): DataFrame = {
    val function = (key: String, rows: Iterator[Row], state: GroupState[Kept]) => {
      val before = state.getOption.map(shown(key, _, "before"))
      before.iterator ++ Iterator(changed(key, rows, state, timeout))
    }
    byKey(events)
      .flatMapGroupsWithState(OutputMode.Update, timeoutOf(timeout))(function)
      .toDF(Columns: _*)
  }

  /** What each key has now. */
  def mapped(events: DataFrame, timeout: String): DataFrame = {
    val function = (key: String, rows: Iterator[Row], state: GroupState[Kept]) =>
      changed(key, rows, state, timeout)
    byKey(events).mapGroupsWithState(timeoutOf(timeout))(function).toDF(Columns: _*)
  }
}

private object GroupStateOperators {
  /** How many events there were, and a text of changing length. */
  private type Kept = (Long, String)
  private type Shown = (String, Long, String, String)

  private val Columns = Seq("key", "events", "text", "fate")
  private val LongestText = 500

  private implicit val keptEncoder: Encoder[Kept] =
    Encoders.tuple(Encoders.scalaLong, Encoders.STRING)
  private implicit val shownEncoder: Encoder[Shown] =
    Encoders.tuple(Encoders.STRING, Encoders.scalaLong, Encoders.STRING, Encoders.STRING)

  private def byKey(events: DataFrame): KeyValueGroupedDataset[String, Row] =
    events.groupByKey((row: Row) => row.getAs[String]("key"))(Encoders.STRING)

  private def timeoutOf(name: String): GroupStateTimeout = name match {
    case "EventTime" => GroupStateTimeout.EventTimeTimeout()
    case "ProcessingTime" => GroupStateTimeout.ProcessingTimeTimeout()
    case "None" => GroupStateTimeout.NoTimeout()
  }

  private def shown(key: String, kept: Kept, fate: String): Shown = (key, kept._1, kept._2, fate)

  private def changed(
      key: String, rows: Iterator[Row], state: GroupState[Kept], timeout: String): Shown = {
    val old = state.getOption.getOrElse((0L, ""))
    if (state.hasTimedOut) {
      state.remove()
      shown(key, old, "timed out")
    } else update(key, rows.toSeq, old, state, timeout)
  }

  private def update(
      key: String,
      rows: Seq[Row],
      old: Kept,
      state: GroupState[Kept],
      timeout: String): Shown = {
    val (_, amount, text) = rows.map(contentOf).max
    val longer = (old._2 + text).takeRight(LongestText)
    val kept = (old._1 + rows.size, if (amount % 3 == 0) text else longer)
    if (amount % 5 == 0) {
      state.remove()
      shown(key, kept, "removed")
    } else {
      state.update(kept)
      setTimeout(state, timeout, amount)
      shown(key, kept, "kept")
    }
  }

  private def contentOf(row: Row): (Long, Long, String) =
    (row.getAs[Timestamp]("moment").getTime, row.getAs[Long]("amount"), row.getAs[String]("text"))

  /** By processing time a key is forgotten in the next batch or not at all: no test is too slow. */
  private def setTimeout(state: GroupState[Kept], timeout: String, amount: Long): Unit = {
    val isSoon = amount % 2 == 0
    timeout match {
      case "EventTime" =>
        state.setTimeoutTimestamp(state.getCurrentWatermarkMs() + (if (isSoon) 30000 else 150000))
      case "ProcessingTime" => state.setTimeoutDuration(if (isSoon) "1 millisecond" else "1 day")
      case "None" =>
    }
  }
}
