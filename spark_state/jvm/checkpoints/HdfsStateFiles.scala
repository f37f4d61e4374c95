package org.apache.spark.sql.execution.streaming.state.cowstate.checkpoints

import org.apache.spark.sql.execution.streaming.state.cowstate.base.HdfsStateFile

/**
 * Files of Spark's provider in a directory, and the choice of the files that make up a version.
 * Pure.
 */
final class HdfsStateFiles(files: Iterable[HdfsStateFile]) {
  private val (snapshots, deltaVersions) = {
    val (s, d) = files.partition(_.isSnapshot)
    (s.map(_.version).toSet, d.map(_.version).toSet)
  }

  def latestVersion: Option[Long] = (snapshots ++ deltaVersions).maxOption

  def has(version: Long): Boolean = snapshots(version) || deltaVersions(version)

  def all: Iterable[HdfsStateFile] = files

  /**
   * Return the files with the changes of these versions, or None if the changes of any version are
   * missing.
   */
  def deltas(from: Long, to: Long): Option[Seq[HdfsStateFile]] =
    Option.when((from to to).forall(deltaVersions))(
      (from to to).map(HdfsStateFile(_, isSnapshot = false)))

  /**
   * Return the files of a version in the order in which they apply, or the version whose file is
   * missing. Snapshots in `damaged` are not used. If `fromSnapshot` is given, only the snapshot of
   * that version is used.
   */
  def lineageOf(
      version: Long,
      damaged: Set[Long],
      fromSnapshot: Option[Long]): Either[Long, Seq[HdfsStateFile]] = {
    var applied = List.empty[HdfsStateFile]
    var at = version
    while (at > 0) {
      if (snapshots(at) && !damaged(at) && fromSnapshot.forall(_ == at)) {
        return Right(HdfsStateFile(at, isSnapshot = true) :: applied)
      }
      if (!deltaVersions(at)) return Left(at)
      applied = HdfsStateFile(at, isSnapshot = false) :: applied
      at -= 1
    }
    if (fromSnapshot.isDefined) Left(at) else Right(applied)
  }
}
