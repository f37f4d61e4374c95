package org.apache.spark.sql.execution.streaming.state.cowstate.suites

import java.io.PrintStream

import scala.util.control.NonFatal
import scala.util.matching.Regex

import org.scalatest.{Args, DynaTags, Filter, Suite}

/**
 * Command that runs tests of a suite: `SuiteRun <class of a suite> <file of outcomes> <left out>
 * [<only>]`. Runs the tests whose names do not match the regular expression `left out`, and match
 * the regular expression `only`, if given.
 */
object SuiteRun {
  private val LeftOut = "left out"

  def main(arguments: Array[String]): Unit = {
    val outcomes = new Outcomes(new PrintStream(arguments(1), "UTF-8"))
    val leftOut = arguments(2).r
    val only = arguments.lift(3).map(_.r)
    try run(arguments(0), outcomes, isRun(leftOut, only))
    catch {
      // No test would report an error in the set-up of the suite, for example a missing method.
      case e @ (NonFatal(_) | _: LinkageError) => outcomes.aborted(e)
    }
    outcomes.close()
    // Threads of a failed suite may go on.
    Runtime.getRuntime.halt(0)
  }

  private def isRun(leftOut: Regex, only: Option[Regex])(test: String): Boolean =
    leftOut.findFirstIn(test).isEmpty && only.forall(_.findFirstIn(test).isDefined)

  private def run(name: String, outcomes: Outcomes, isRun: String => Boolean): Unit = {
    val suite = Class.forName(name).getConstructor().newInstance().asInstanceOf[Suite]
    val tags = suite.testNames.filterNot(isRun).map(_ -> Set(LeftOut)).toMap
    val filter = Filter(
      tagsToExclude = Set(LeftOut), dynaTags = DynaTags(Map.empty, Map(suite.suiteId -> tags)))
    suite.run(None, Args(outcomes, filter = filter)).waitUntilCompleted()
  }
}
