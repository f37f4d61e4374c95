package org.apache.spark.sql.execution.streaming.state.cowstate.checkpoints

import org.apache.spark.sql.execution.streaming.state.cowstate.base.{
  CowStateCorruptException, CowStateException, CowStateMissingException, HdfsStateFile,
  StateFileName
}

/**
 * Damaged files that a restore has found, and does not use. `own`: snapshots and merged files of
 * cowstate. `adopted`: versions of snapshots of Spark's provider, in an adopted checkpoint.
 */
private[cowstate] final case class Damaged(
    own: Set[StateFileName] = Set.empty, adopted: Set[Long] = Set.empty) {
  def names: Seq[String] =
    own.map(_.toString).toSeq ++ adopted.map(HdfsStateFile(_, isSnapshot = true).toString)

  /**
   * Return these damaged files and, in addition, the file of `lineage` that `error` names. None if
   * other files cannot replace the file, as for a changelog, or if `error` names no file of
   * `lineage`.
   */
  def withFileIn(lineage: Lineage, error: CowStateException): Option[Damaged] = {
    val file = error match {
      case corrupt: CowStateCorruptException => Some(corrupt.file)
      case missing: CowStateMissingException => Some(missing.file)
      case _ => None
    }
    file.map(_.split('/').last).flatMap { name =>
      lineage.files.find(f => !f.isChangelog && f.toString == name).map(f => copy(own = own + f))
        .orElse(lineage.adopted.find(f => f.isSnapshot && f.toString == name)
            .map(f => copy(adopted = adopted + f.version)))
    }
  }
}
