package org.apache.spark.sql.execution.streaming.state.cowstate

import org.apache.spark.sql.execution.streaming.state.StateStoreId

/**
 * Which of several attempts at a version counts in the four stores of a join, in checkpoint format
 * 1. An attempt may have been killed when it had written some of them. Spark commits no batch of
 * such a one, so it counts in no store. In format 2 Spark names the attempt.
 *
 * @param listed what the directory of a store has; asked for the stores beside this one, and only if
 *               several attempts made the version
 */
private[cowstate] final class WholeAttempts(
    id: StateStoreId, listed: StateStoreId => Seq[String]) {

  /** The state that counts as `version`, as StateFiles says; None if there is no file of it. */
  def stateAt(version: Long, unique: Option[String], files: StateFiles): Option[StateId] =
    files.stateAt(version, unique.orElse(whole(version, files)))

  /** The attempt that counts, if several made a version and some of them are in each store. */
  private def whole(version: Long, files: StateFiles): Option[String] = {
    val attempts = files.attemptsAt(version)
    if (attempts.size < 2 || files.isRescaledAt(version)) None
    else {
      JoinStores.besides(id.storeName).foldLeft(attempts) { (left, name) =>
        val beside = new StateFiles(
          listed(id.copy(storeName = name)).flatMap(StateFileName.parse)).attemptsAt(version)
        left.filter(beside.contains)
      }.headOption
    }
  }
}
