package org.apache.spark.sql.execution.streaming.state.cowstate.checkpoints

/**
 * Handover of a view from a batch to maintenance. If maintenance finds the store busy, maintenance
 * asks for a view, the next batch leaves a view at the commit, and the next maintenance takes the
 * view. If Spark forces a snapshot, the batch also leaves a view, provided that the state is in an
 * object store. A view that maintenance does not take is released.
 */
private[cowstate] final class ViewHandover {
  private var isAsked = false
  private var isLeftByForce = false
  private var left: TakenView = _

  def ask(): Unit = synchronized {
    isAsked = true
  }

  /** True if the waiting view must be written as a snapshot, even if no snapshot is due. */
  def isForced: Boolean = synchronized(isLeftByForce)

  /**
   * Keep a view for the next maintenance, if maintenance has asked for a view. If Spark forces a
   * snapshot (`isForced`), keep the view even without a request.
   */
  def leave(view: => TakenView, isForced: Boolean): Unit = synchronized {
    if (isForced || isAsked) {
      clear()
      left = view
      isLeftByForce = isForced
    }
  }

  /** Take the waiting view, if the view shows this state. */
  def take(state: LoadedState): Option[TakenView] = synchronized {
    val view = Option(left).filter(_.state eq state)
    if (view.isDefined) left = null
    clear()
    view
  }

  /** Cancel the request, and release the waiting view. */
  def clear(): Unit = synchronized {
    isAsked = false
    isLeftByForce = false
    if (left != null) left.view.release()
    left = null
  }
}
