package org.apache.spark.sql.execution.streaming.state.benchmark

import java.sql.Timestamp

import org.apache.spark.sql.{DataFrame, Encoder, Encoders}
import org.apache.spark.sql.streaming.{GroupState, GroupStateTimeout, OutputMode}

/** Counts rows by key with flatMapGroupsWithState, which PySpark has for pandas only. */
object GroupCounts {
  private type Pair = (Long, Timestamp)
  private implicit val count: Encoder[Long] = Encoders.scalaLong
  private implicit val counts: Encoder[(Long, Long)] = Encoders.tuple(count, count)
  private implicit val pairs: Encoder[Pair] = Encoders.tuple(count, Encoders.TIMESTAMP)

  /**
   * Return key and count of the keys in a batch. `rows` has the columns `key` and `timestamp`. A
   * key times out a day after its last row.
   */
  def of(rows: DataFrame): DataFrame = {
    val function = (key: Long, added: Iterator[Pair], state: GroupState[Long]) => {
      var total = state.getOption.getOrElse(0L)
      var last = 0L
      added.foreach { case (_, time) =>
        total += 1
        last = math.max(last, time.getTime)
      }
      state.update(total)
      state.setTimeoutTimestamp(last, "1 day")
      Iterator((key, total))
    }
    rows.as[Pair].groupByKey((pair: Pair) => pair._1)
      .flatMapGroupsWithState(OutputMode.Update, GroupStateTimeout.EventTimeTimeout)(function)
      .toDF("key", "count")
  }
}
