package org.apache.spark.sql.execution.streaming.state.cowstate

import java.util

/** What the private parts of a map and of its versions hold, counted apart from the account. */
object HeldBytes {
  def ofMap(map: CopyOnWritePagedMap): Long = {
    val tables = Seq("primary", "rehashed").map(field[Array[Long]](map, _)).filter(_ != null)
    field[RecordPages](map, "records").allocatedBytes +
      tables.map(_.length * 8L).sum +
      field[Long](map, "droppedUnderViews") +
      field[Option[CopyOnWritePagedMap]](map, "prefixes").map(ofMap).getOrElse(0L)
  }

  def ofVersions(versions: VersionedState): Long = {
    val older = field[util.ArrayDeque[(StateId, UndoLog)]](versions, "older")
    var logs = Option(field[UndoLog](versions, "writing")).toList
    older.forEach(entry => logs = entry._2 :: logs)
    ofMap(versions.map) + logs.map(field[Long](_, "held")).sum
  }

  /** The log that leads from the newest version to the one before it. */
  def newestUndoLog(versions: VersionedState): UndoLog =
    field[util.ArrayDeque[(StateId, UndoLog)]](versions, "older").peek()._2

  private def field[T](of: AnyRef, name: String): T = {
    val found = of.getClass.getDeclaredField(name)
    found.setAccessible(true)
    found.get(of).asInstanceOf[T]
  }
}
