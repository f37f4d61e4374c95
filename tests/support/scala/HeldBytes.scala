package org.apache.spark.sql.execution.streaming.state.cowstate

import java.util

import scala.jdk.CollectionConverters._

import org.apache.spark.sql.execution.streaming.state.StateStore

/**
 * What can be reached of a map, its versions and its open views, counted apart from the account:
 * arrays of bytes, each once, tables, and indexes of undo logs.
 */
object HeldBytes {
  def ofMap(map: CopyOnWritePagedMap, views: Iterable[MapView]): Long = {
    val held = new Held
    val records = field[RecordPages](map, "records")
    field[Array[Block]](records, "pages").filter(_ != null).foreach(held.add)
    field[Array[Array[Long]]](records, "deaths").filter(_ != null).foreach(held.add)
    views.foreach { view =>
      field[Array[PageContents]](view, "pages").foreach { contents =>
        held.add(contents.page)
        if (contents.deaths != null) held.add(contents.deaths)
      }
    }
    field[KeyIndex](map, "index").blocks.foreach(held.add)
    held.bytes + field[Option[PrefixLinks]](map, "prefixes")
      .map(links => ofMap(links.heads, Nil)).getOrElse(0L)
  }

  /** Blocks and bitmaps, each counted once. */
  private final class Held {
    private val seen =
      util.Collections.newSetFromMap(new util.IdentityHashMap[AnyRef, java.lang.Boolean])
    var bytes = 0L

    def add(block: Block): Unit = if (seen.add(block)) bytes += block.bytes
    def add(bitmap: Array[Long]): Unit = if (seen.add(bitmap)) bytes += bitmap.length * 8L
  }

  def ofVersions(versions: VersionedState, views: Iterable[MapView]): Long = {
    val older = field[util.ArrayDeque[(StateId, UndoLog)]](versions, "older").asScala.map(_._2)
    ofMap(versions.map, views) + (older ++ Option(writtenUndoLog(versions))).map(ofLog).sum
  }

  private def ofLog(log: UndoLog): Long = {
    val blocks = field[Array[Block]](log, "blocks").filter(_ != null)
    blocks.map(_.bytes).sum +
      Option(field[Array[Long]](log, "slots")).map(_.length * 8L).getOrElse(0L)
  }

  /** The view that a function releases. */
  def viewOf(release: () => Unit): MapView =
    release.getClass.getDeclaredFields.map(f => field[AnyRef](release, f.getName)).collectFirst {
      case view: MapView => view
    }.get

  def openViews(map: CopyOnWritePagedMap): Int =
    field[util.Map[Integer, Integer]](field[OpenViews](map, "views"), "epochs").size

  /** The log that leads from the newest version to the one before it. */
  def newestUndoLog(versions: VersionedState): UndoLog =
    field[util.ArrayDeque[(StateId, UndoLog)]](versions, "older").peek()._2

  /** The log of the version that is being written; null if none is. */
  def writtenUndoLog(versions: VersionedState): UndoLog = field[UndoLog](versions, "writing")

  /** Let the files of a write store go to another directory. */
  def redirect(store: StateStore, directory: StateDirectory): Unit =
    fieldOf(field[PendingStateFile](store, "changelog"), "create").set(
      field[PendingStateFile](store, "changelog"),
      () => directory.create("changelog", isDurable = true))

  private def field[T](owner: AnyRef, name: String): T =
    fieldOf(owner, name).get(owner).asInstanceOf[T]

  private def fieldOf(owner: AnyRef, name: String): java.lang.reflect.Field = {
    val declared = owner.getClass.getDeclaredFields
      .find(f => f.getName == name || f.getName.endsWith(s"$$$$$name")).get
    declared.setAccessible(true)
    declared
  }
}
