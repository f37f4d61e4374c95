// For IDEs (Metals, IntelliJ): where the Scala sources are, and what they are compiled against, the
// jars of PySpark in .venv (make .venv/installed-dev). The jar that is published is compiled by
// setup.py, with the compiler that PySpark ships.
ThisBuild / scalaVersion := "2.13.18"

lazy val provider = (project in file("."))
  .settings(
    name := "cowstate-provider",
    autoScalaLibrary := false,
    target := baseDirectory.value / "build" / "sbt",
    Compile / unmanagedSourceDirectories := Seq(baseDirectory.value / "spark_state" / "jvm"),
    Test / unmanagedSourceDirectories := Seq(baseDirectory.value / "tests" / "support" / "provider" / "scala"),
    Compile / unmanagedJars := (baseDirectory.value / ".venv" ** "pyspark" / "jars" * "*.jar").classpath,
    Test / unmanagedJars := (Compile / unmanagedJars).value,
    scalacOptions ++= Seq("-release", "17", "-deprecation", "-Xlint")
  )
