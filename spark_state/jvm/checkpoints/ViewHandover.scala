package org.apache.spark.sql.execution.streaming.state.cowstate

/**
 * How maintenance that finds a store busy gets its view: it asks, the batch leaves one when it
 * commits, and the next maintenance takes it. A view that nobody will take is released.
 */
private[cowstate] final class ViewHandover {
  private var isAsked = false
  private var left: TakenView = _

  def ask(): Unit = synchronized {
    isAsked = true
  }

  /** Leave a view, if one was asked for, now or before. */
  def leave(view: => TakenView, isAsked: Boolean): Unit = synchronized {
    if (isAsked || this.isAsked) {
      clear()
      left = view
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
    if (left != null) left.view.release()
    left = null
  }
}
