package org.apache.spark.sql.execution.streaming.state.cowstate

import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.execution.streaming.state.RecordType
import org.apache.spark.util.NextIterator

/** Changes as Spark reads a change feed: their kinds, keys, values and batches. */
private[cowstate] final class ChangeFeed private (changes: Iterator[ChangeFeed.Change])
  extends NextIterator[ChangeFeed.Change] {

  override protected def getNext(): ChangeFeed.Change = CowStateLoadException.reading {
    if (changes.hasNext) {
      changes.next()
    } else {
      finished = true
      null
    }
  }

  override protected def close(): Unit = ()
}

private[cowstate] object ChangeFeed {
  type Change = (RecordType.Value, UnsafeRow, UnsafeRow, Long)

  /**
   * The changes that lead to a state, from those that made `startVersion` on; or, if the changes of
   * a state on the way are not known, that state. Changes of an adopted checkpoint are in its
   * deltas.
   */
  def to(
      end: StateId,
      startVersion: Long,
      files: StateFiles,
      checkpoints: StateCheckpoints,
      shape: StoreShape): Either[StateId, ChangeFeed] = {
    def own(changelogs: Seq[StateFileName]): Iterator[Change] =
      changelogs.iterator.flatMap(name => checkpoints.rowsOf(name).map(change(name.version)))
    val changes = files.changelogsTo(end, startVersion) match {
      case Left(gap) if gap.unique == StateId.Adopted =>
        for {
          deltas <- files.adopted.deltas(startVersion, gap.version).toRight(gap)
          changelogs <- files.changelogsTo(end, gap.version + 1)
        } yield deltas.iterator.flatMap { delta =>
          checkpoints.adoptedRowsOf(delta, shape).iterator.map(change(delta.version))
        } ++ own(changelogs)
      case changelogs => changelogs.map(own)
    }
    changes.map(new ChangeFeed(_))
  }

  private def change(version: Long)(row: (UnsafeRow, UnsafeRow)): Change = {
    val kind = if (row._2 == null) RecordType.DELETE_RECORD else RecordType.PUT_RECORD
    (kind, row._1, row._2, version - 1)
  }
}
