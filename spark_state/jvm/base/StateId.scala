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

  /** Draw an id for an attempt, or for the writer of a file. */
  def newUnique(): String = UUID.randomUUID().toString.replace("-", "").take(16)
}
