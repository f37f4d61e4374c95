package org.apache.spark.sql.execution.streaming.state.cowstate

/**
 * How maintenance that finds a store busy gets its view: it asks, the batch leaves one when it
 * commits, and the next maintenance takes it. A batch for which Spark forces a snapshot leaves one,
 * too, if its state is in an object store. A view that nobody will take is released.
 */
private[cowstate] final class ViewHandover {
  private var isAsked = false
  private var isLeftByForce = false
  private var left: TakenView = _

  def ask(): Unit = synchronized {
    isAsked = true
  }

  /** Whether a snapshot is to be written of what was left, whether one is due or not. */
  def isForced: Boolean = synchronized(isLeftByForce)

  /** Leave a view, if one was asked for, or if Spark forces a snapshot. */
  def leave(view: => TakenView, isForced: Boolean): Unit = synchronized {
    if (isForced || isAsked) {
      clear()
      left = view
      isLeftByForce = isForced
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
    isLeftByForce = false
    if (left != null) left.view.release()
    left = null
  }
}
