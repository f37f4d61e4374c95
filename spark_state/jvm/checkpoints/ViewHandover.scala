package org.apache.spark.sql.execution.streaming.state.cowstate

/**
 * How maintenance that finds a store busy gets its view: it asks, the batch leaves one when it
 * commits, and the next maintenance takes it. A view that nobody will take is released.
 */
private[cowstate] final class ViewHandover {
  private var isAsked = false
  private var isNeeded = false
  private var left: TakenView = _

  def ask(): Unit = synchronized {
    isAsked = true
  }

  /** Whether a snapshot is to be written of what was left, whether one is due or not. */
  def isForced: Boolean = synchronized(isNeeded)

  /** Leave a view, if one was asked for, or if Spark forces a snapshot. */
  def leave(view: => TakenView, isForced: Boolean): Unit = synchronized {
    if (isForced || isAsked) {
      clear()
      left = view
      isNeeded = isForced
    }
  }

  /** The view that was left, if it is of this state. */
  def take(state: LoadedState): Option[TakenView] = synchronized {
    val view = Option(left).filter(_.state eq state)
    if (view.isDefined) left = null
    clear()
    view
  }

  /** Nothing is asked for any more, and what was left is released. */
  def clear(): Unit = synchronized {
    isAsked = false
    isNeeded = false
    if (left != null) left.view.release()
    left = null
  }
}
