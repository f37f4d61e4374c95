package org.apache.spark.sql.execution.streaming.state.cowstate.provider

import org.apache.spark.sql.execution.streaming.state.StateStoreId
import org.apache.spark.sql.execution.streaming.state.cowstate.base.{StateFileName, StateId}
import org.apache.spark.sql.execution.streaming.state.cowstate.checkpoints.StateFiles

/**
 * Choice between several attempts at a version, in checkpoint format 1: all four stores of a join
 * take the same attempt. A killed attempt may have written only some of the stores. Spark commits
 * no batch of such an attempt, so the attempt counts in no store. In format 2 Spark names the
 * attempt.
 *
 * @param listed lists the directory of a store. Called for the other stores of the join, and only
 *               if several attempts made the version
 */
private[cowstate] final class WholeAttempts(
    id: StateStoreId, listed: StateStoreId => Seq[String]) {

  /** Return the state that counts as `version`, see StateFiles. None if the version has no file. */
  def stateAt(version: Long, unique: Option[String], files: StateFiles): Option[StateId] =
    files.stateAt(version, unique.orElse(whole(version, files)))

  /**
   * Return the attempt that counts, if several attempts made a version and at least one attempt is
   * in all four stores.
   */
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
