import java.nio.file.{Files, Path}

import org.scalafmt.Scalafmt

/**
 * `ScalaFormat <configuration> check|write <file>...` names the files that are not formatted, and
 * formats them with `write`.
 */
object ScalaFormat {
  def main(arguments: Array[String]): Unit = {
    val style = Scalafmt.parseHoconConfig(Files.readString(Path.of(arguments(0)))).get
    val writes = arguments(1) == "write"
    arguments.drop(2).foreach { name =>
      val source = Files.readString(Path.of(name))
      val formatted = Scalafmt.format(source, style, Set.empty, name).get
      if (formatted != source) println(name)
      if (writes && formatted != source) Files.writeString(Path.of(name), formatted)
    }
  }
}
