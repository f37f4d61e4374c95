package org.apache.spark.sql.execution.streaming.state.cowstate

/** Snapshots that a restore has found to be damaged and passes over. */
private[cowstate] final case class Damaged(
    own: Set[StateFileName] = Set.empty, adopted: Set[Long] = Set.empty) {
  def names: Seq[String] =
    own.map(_.toString).toSeq ++ adopted.map(HdfsStateFile(_, isSnapshot = true).toString)

  /** These and the snapshot of `lineage`, if that is the file that an error is about. */
  def withSnapshotIn(lineage: Lineage, error: CowStateException): Option[Damaged] = {
    val file = error match {
      case corrupt: CowStateCorruptException => Some(corrupt.file)
      case missing: CowStateMissingException => missing.file
      case _ => None
    }
    file.map(_.split('/').last).flatMap { name =>
      lineage.snapshot.filter(_.toString == name).map(s => copy(own = own + s))
        .orElse(lineage.adopted.find(f => f.isSnapshot && f.toString == name)
          .map(f => copy(adopted = adopted + f.version)))
    }
  }
}
