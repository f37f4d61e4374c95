package org.apache.spark.sql.execution.streaming.state.cowstate.scripts

import java.util

import scala.collection.mutable
import scala.jdk.CollectionConverters._

import org.apache.spark.sql.execution.streaming.state.StateStore
import org.apache.spark.sql.execution.streaming.state.cowstate.base.StateId
import org.apache.spark.sql.execution.streaming.state.cowstate.checkpoints.PendingStateFile
import org.apache.spark.sql.execution.streaming.state.cowstate.files.StateDirectory
import org.apache.spark.sql.execution.streaming.state.cowstate.map.{
  CopyOnWritePagedMap, KeyIndex, MapView, OpenViews, PageContents, PrefixLinks, RecentFinds,
  RecordPages, UndoLog, VersionedState
}
import org.apache.spark.sql.execution.streaming.state.cowstate.memory.{
  Block, MappedMemory, NumberedBlocks, StateMemory
}

/** Bytes of blocks (pages, tables, undo logs), and of arrays that are on the heap in any case. */
final case class HeldBytes(inBlocks: Long, inArrays: Long) {
  def plus(other: HeldBytes): HeldBytes =
    HeldBytes(inBlocks + other.inBlocks, inArrays + other.inArrays)
}

/**
 * What can be reached of a map, its versions and its open views, counted apart from the account and
 * the memory: pages, bitmaps, tables, and undo logs with their indexes, each once.
 */
object HeldBytes {
  /** The same, as account and memory say. */
  def chargedIn(memory: StateMemory): HeldBytes = memory match {
    case mapped: MappedMemory => HeldBytes(givenOut(mapped), mapped.account.bytes)
    case _ => HeldBytes(0, memory.account.bytes)
  }

  /** What is held, as they are to say it: on the heap, the account has all of it. */
  def asCharged(memory: StateMemory, held: HeldBytes): HeldBytes = memory match {
    case _: MappedMemory => held
    case _ => HeldBytes(0, held.inBlocks + held.inArrays)
  }

  private def givenOut(memory: MappedMemory): Long = {
    val cut = field[mutable.ArrayBuffer[AnyRef]](memory, "segments").map(field[Long](_, "cutBytes"))
    val alone = field[util.Map[Block, AnyRef]](memory, "ofOneBlock").keySet.asScala.toSeq
    val returned = field[mutable.LongMap[util.ArrayDeque[Block]]](memory, "returned").values
    cut.sum + alone.map(_.bytes).sum - returned.flatMap(_.asScala).map(_.bytes).sum
  }

  def ofMap(map: CopyOnWritePagedMap, views: Iterable[MapView]): HeldBytes = {
    val held = new Held
    held.add(map, views)
    held.bytes
  }

  def ofVersions(versions: VersionedState, views: Iterable[MapView]): HeldBytes = {
    val held = new Held
    held.add(versions.map, views)
    field[util.ArrayDeque[(StateId, UndoLog)]](versions, "older").forEach(older =>
      held.add(older._2))
    Option(writtenUndoLog(versions)).foreach(held.add)
    held.bytes
  }

  /** Blocks and bitmaps, each counted once. On the heap, no two blocks have one array. */
  private final class Held {
    private val seen =
      util.Collections.newSetFromMap(new util.IdentityHashMap[AnyRef, java.lang.Boolean])
    var bytes = HeldBytes(0, 0)

    def add(map: CopyOnWritePagedMap, views: Iterable[MapView]): Unit = {
      val records = field[RecordPages](map, "records")
      val pages = field[NumberedBlocks](records, "pages")
      field[Array[Block]](pages, "blocks").filter(_ != null).foreach(add)
      field[Array[Array[Long]]](records, "deaths").filter(_ != null).foreach(add)
      views.foreach { view =>
        field[Array[PageContents]](view, "pages").foreach { contents =>
          add(contents.page)
          if (contents.deaths != null) add(contents.deaths)
        }
      }
      field[KeyIndex](map, "index").blocks.foreach(add)
      addInArrays(field[RecentFinds](map, "finds").heldBytes)
      field[Option[PrefixLinks]](map, "prefixes").foreach(links => add(links.heads, Nil))
    }

    def add(log: UndoLog): Unit = {
      blocksOf(log).foreach(add)
      Option(field[Array[Long]](log, "slots")).foreach(add)
    }

    private def add(block: Block): Unit = if (seen.add(block)) {
      assert(block.base == null || seen.add(block.base), "two blocks have one array")
      bytes = bytes.plus(HeldBytes(block.bytes, 0))
    }

    private def add(bitmap: Array[Long]): Unit =
      if (seen.add(bitmap)) addInArrays(bitmap.length * 8L)
    private def addInArrays(more: Long): Unit = bytes = bytes.plus(HeldBytes(0, more))
  }

  private def blocksOf(log: UndoLog): Seq[Block] =
    field[Array[Block]](log, "blocks").filter(_ != null).toSeq

  def blockCount(log: UndoLog): Int = blocksOf(log).size

  def breakFirstSegment(memory: MappedMemory): Unit = {
    val segment = field[mutable.ArrayBuffer[AnyRef]](memory, "segments").head
    fieldOf(segment, "file").set(segment, null)
  }

  /** How many pages a view has anything to read in. */
  def pagesToRead(view: MapView): Int = field[Array[PageContents]](view, "pages").count(_.end > 0)

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
