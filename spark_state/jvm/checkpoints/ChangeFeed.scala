package org.apache.spark.sql.execution.streaming.state.cowstate.checkpoints

import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.execution.streaming.state.RecordType
import org.apache.spark.sql.execution.streaming.state.cowstate.base.{
  CowStateLoadException, StateFileName, StateId, StoreShape
}
import org.apache.spark.util.NextIterator

/** Changes in the form of Spark's change feed: kind, key, value and batch of each change. */
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
   * Return the changes that lead to the state `end`, from version `startVersion` on. If the changes
   * that made one of the states from `startVersion` to `end` are missing, return this state on the
   * left. In an adopted checkpoint, the changes of earlier versions come from the deltas of Spark's
   * provider.
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
