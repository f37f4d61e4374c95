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
   * Return the id of the state to which Spark's commit log refers as `checkpointId`, in checkpoint
   * format 2. The log of a checkpoint that was adopted from RocksDB has the UUID of RocksDB's state,
   * and the adopted state has the first digits of this UUID. So an adoption need not edit the log.
   */
  def uniqueOf(checkpointId: String): String = checkpointId.replace("-", "").take(Digits)
}
