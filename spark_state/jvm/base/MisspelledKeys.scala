package org.apache.spark.sql.execution.streaming.state.cowstate.base

import org.apache.spark.unsafe.types.UTF8String

/**
 * Check for settings of cowstate that nothing reads. Spark accepts any key, so a misspelled key
 * would silently have no effect. Pure.
 *
 * @param prefix prefix of the right keys, with a dot at the end
 * @param names  allowed names behind the prefix; empty: any name
 */
private[cowstate] final class MisspelledKeys(prefix: String, names: Seq[String]) {
  import MisspelledKeys._

  /**
   * Throws IllegalArgumentException for a key with an unknown name, and for a key whose beginning
   * differs from the prefix in a few letters.
   */
  def refuse(settings: Map[String, String]): Unit = {
    refuseUnknown(settings)
    for ((key, value) <- settings.toSeq.sorted; name <- nameBehindOtherPrefix(key)) {
      throw refused(key, value, name)
    }
  }

  /**
   * Throws IllegalArgumentException for a key with an unknown name. Upper and lower case count as
   * the same.
   */
  def refuseUnknown(settings: Map[String, String]): Unit =
    for ((key, value) <- settings.toSeq.sorted if key.toLowerCase.startsWith(prefix.toLowerCase)) {
      val name = key.drop(prefix.length)
      if (names.nonEmpty && !names.exists(_.equalsIgnoreCase(name))) throw refused(key, value, name)
    }

  private def nameBehindOtherPrefix(key: String): Option[String] = {
    val words = key.split("\\.", -1).toSeq
    val (before, name) = words.splitAt(prefix.count(_ == '.'))
    val other = before.mkString("", ".", ".")
    Option.when(name.nonEmpty && other != prefix && distance(other, prefix) <= Letters)(
      name.mkString("."))
  }

  private def refused(key: String, value: String, name: String) = {
    val near = if (names.isEmpty) Some(name) else nearest(name)
    val way = near.fold(s"the keys are ${names.map(prefix + _).mkString(", ")}")(right =>
      s"did you mean $prefix$right?")
    val is = if (OfSecrets.findFirstIn(key).isDefined) "set" else s"'${value.take(100)}'"
    new IllegalArgumentException(s"$key is $is, and there is no such setting: $way")
  }

  private def nearest(name: String): Option[String] = {
    val near = names.minBy(distance(name, _))
    Option.when(distance(name, near) <= math.max(name.length, near.length) / 2)(near)
  }
}

private object MisspelledKeys {
  /**
   * Greatest number of letters in which a misspelled prefix differs from the right prefix. Two
   * swapped letters count as two.
   */
  private val Letters = 2
  private val OfSecrets = "(?i)secret|password|token|credential|access.?key|options".r

  private def distance(text: String, other: String): Int =
    UTF8String.fromString(text.toLowerCase)
      .levenshteinDistance(UTF8String.fromString(other.toLowerCase))
}
