package org.apache.spark.sql.execution.streaming.state.cowstate.base

import java.util.UUID

/**
 * A committed state: the version, and the id of the attempt that made the state (see
 * StateFileName).
 */
final case class StateId(version: Long, unique: String)

object StateId {
  /** State before the first batch. */
  val Empty: StateId = StateId(0, "0")

  /** Id of the states that the earlier provider of an adopted checkpoint wrote. */
  val Adopted: String = "0000000000000adf"

  private val Digits = 16

  /** Draw an id for an attempt, or for the writer of a file. */
  def newUnique(): String = uniqueOf(UUID.randomUUID().toString)

  /**
   * Return the first 16 hex digits of a UUID. In checkpoint format 2, Spark's commit log names a
   * state by the UUID `checkpointId`, and these digits are the id of the state. An adoption from
   * RocksDB uses the digits of RocksDB's UUIDs, so the log needs no change.
   */
  def uniqueOf(checkpointId: String): String = checkpointId.replace("-", "").take(Digits)
}
