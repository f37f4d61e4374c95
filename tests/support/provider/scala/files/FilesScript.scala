package org.apache.spark.sql.execution.streaming.state.cowstate.scripts

import scala.collection.mutable

import org.apache.spark.sql.execution.streaming.state.cowstate.base.{StateFileName, StateId}
import org.apache.spark.sql.execution.streaming.state.cowstate.checkpoints.{Lineage, StateFiles}

/** A directory of state files, of which there are only the names, and those who write there. */
final class FilesScript {
  private val names = mutable.LinkedHashSet.empty[String]
  private val cut = mutable.Set.empty[StateFileName]
  private val writers = mutable.Map.empty[String, Writer]

  private final class Writer(var head: StateId, var generation: Long)

  /** The results of the lines of a script, one line each. */
  def run(script: String): String =
    script.linesIterator.map(line => step(line.split(' ').toList)).mkString("\n")

  private def files = new StateFiles(names.toSeq.flatMap(StateFileName.parse))

  private def step(words: List[String]): String = words match {
    case List("writer", writer, version) =>
      val head = files.stateAt(version.toLong, None)
      head.foreach(state => writers(writer) = new Writer(state, files.nextGeneration))
      head.map(_.unique).getOrElse("none")
    case List("again", writer) =>
      writers(writer).generation = files.nextGeneration
      ""
    case List("commit", writer, unique) =>
      val by = writers(writer)
      val base = by.head
      by.head = StateId(base.version + 1, unique)
      publish(StateFileName(by.head.version, by.generation, unique, Some(base.unique)))
    case "snapshot" :: writer :: attempt :: harm =>
      val by = writers(writer)
      publish(StateFileName.ofSnapshot(by.head, by.generation, attempt), harm)
    case "merge" :: writer :: attempt :: back :: count :: harm =>
      val by = writers(writer)
      val changes = files.lineageOf(by.head, cut.toSet).toOption.get.changes
      val chosen = changes.dropRight(back.toInt).takeRight(count.toInt)
      if (chosen.size < 2) ""
      else publish(StateFileName.merging(chosen, by.generation, attempt), harm)
    case List("clean", writer, retained, versions) =>
      val head = writers(writer).head
      val deletable = files.deletable(head, head.version - retained.toLong, cut.toSet).files
      val chosen = deletable.map(_.version).distinct.sorted.take(versions.toInt).toSet
      val deleted = deletable.filter(file => chosen(file.version)).map(_.toString)
      names --= deleted
      deleted.mkString(" ")
    case _ => ask(words)
  }

  private def ask(words: List[String]): String = words match {
    case List("at", version) => files.stateAt(version.toLong, None).map(_.unique).getOrElse("none")
    case List("at", version, unique) =>
      files.stateAt(version.toLong, Some(unique)).map(_.unique).getOrElse("none")
    case List("lineage", version, unique) =>
      show(files.lineageOf(StateId(version.toLong, unique), cut.toSet))
    case List("fallback", version, unique) =>
      val state = StateId(version.toLong, unique)
      val newest = files.lineageOf(state, cut.toSet).toOption.flatMap(_.snapshot)
      show(files.lineageOf(state, cut.toSet ++ newest))
    case List("changes", version, unique, start) =>
      files.changelogsTo(StateId(version.toLong, unique), start.toLong) match {
        case Right(changelogs) => changelogs.mkString(" ")
        case Left(gap) => s"gap ${gap.version}"
      }
    case _ => throw new IllegalArgumentException(words.mkString(" "))
  }

  private def show(outcome: Either[StateId, Lineage]): String = outcome match {
    case Right(lineage) => lineage.files.mkString(" ")
    case Left(gap) => s"gap ${gap.version}"
  }

  private def publish(name: StateFileName, harm: List[String] = Nil): String = {
    assert(names.add(name.toString), s"$name is written twice")
    if (harm == List("cut")) cut += name
    name.toString
  }

  /** What a name parses to, written again; "none" for names that are not ours. */
  def parsed(name: String): String =
    StateFileName.parse(name).map { file =>
      assert(StateFileName.parse(file.toString).contains(file))
      val upon = file.base.getOrElse("-")
      s"${file.version} ${file.generation} ${file.unique} $upon ${file.versions} $file"
    }.getOrElse("none")
}
