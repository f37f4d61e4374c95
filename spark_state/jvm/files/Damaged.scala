package org.apache.spark.sql.execution.streaming.state.cowstate

/** Snapshots and merged files that a restore has found to be damaged and passes over. */
private[cowstate] final case class Damaged(
    own: Set[StateFileName] = Set.empty, adopted: Set[Long] = Set.empty) {
  def names: Seq[String] =
    own.map(_.toString).toSeq ++ adopted.map(HdfsStateFile(_, isSnapshot = true).toString)

  /** These files, and the file of `lineage` that an error is about if others may take its place. */
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
