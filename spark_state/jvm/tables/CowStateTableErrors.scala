package org.apache.spark.sql.execution.datasources.v2.cowstate

import org.apache.spark.sql.connector.catalog.{TableCatalog, TableChange}
import org.apache.spark.sql.connector.catalog.TableChange._
import org.apache.spark.sql.connector.write.RowLevelOperation.Command

/** Errors of tables, raised before the source in Python is asked. Each error says what to do. */
private[cowstate] object CowStateTableErrors {
  def partitioned(): Exception = new IllegalArgumentException(
    "a cowstate table has no partitions and no buckets: its rows are kept by their key. Leave " +
      "partitionBy, clusterBy, bucketBy, PARTITIONED BY and CLUSTER BY out")

  def defaultOf(column: String): Exception = new IllegalArgumentException(
    s"column $column has a DEFAULT, which a cowstate table does not keep: leave it out, and give " +
      "the value in the rows")

  def otherColumns(option: String, path: String): Exception = new IllegalArgumentException(
    s"with option $option a read has other columns than the catalog says of its table at $path: " +
      s"""read it by its path, spark.read.format("cowstate").option("$option", …).load("$path"), """ +
      "or create another table with the option in OPTIONS")

  def otherPath(asked: String, path: String): Exception = new IllegalArgumentException(
    s"option path is $asked, and the catalog has the table at $path: leave the option out, or " +
      s"""write there with save("$asked")""")

  def replaced(table: String): Exception = new UnsupportedOperationException(
    s"$table exists, and to replace it Spark would drop it first, with the rows that it has, before " +
      "it runs the query or asks about options and columns: write a table of another name, drop " +
      s"$table when the other is right, and rename the other with ALTER TABLE … RENAME TO")

  def unknownToTable(change: TableChange, path: String): Exception = {
    val refused = change match {
      case _: AddColumn => "ADD COLUMNS with FIRST or AFTER, or inside of a struct,"
      case _: DeleteColumn => "DROP COLUMN"
      case _: RenameColumn => "RENAME COLUMN"
      case _: ColumnChange => "ALTER COLUMN"
      case _: ClusterBy => "CLUSTER BY"
      case set: SetProperty if set.property == TableCatalog.PROP_COLLATION => "DEFAULT COLLATION"
      case _: SetProperty => "SET LOCATION"
      case remove: RemoveProperty => s"UNSET ${remove.property}"
      case other => other.getClass.getSimpleName
    }
    new UnsupportedOperationException(
      s"ALTER TABLE … $refused would change Spark's catalog only, and not the table at $path. " +
        "Possible are ADD COLUMNS and SET TBLPROPERTIES ('option.<name>' = …); for anything else " +
        "create another table, with AS SELECT to change columns, with LOCATION to name another " +
        "place")
  }

  def columnsOf(option: String): Exception = new IllegalArgumentException(
    s"option $option says which columns the table has, and is fixed when it is created: create " +
      "another table with LOCATION, and with the option in OPTIONS")

  def otherSpelling(asked: String, there: String): Exception = new IllegalArgumentException(
    s"property $asked is $there in the catalog, which would keep both: write '$there'")

  def keptTwice(option: String, name: String): Exception = new IllegalArgumentException(
    s"the catalog has $option as $name, too: unset both, UNSET TBLPROPERTIES ('$option', '$name')")

  def rowLevelOperation(command: Command): Exception = {
    val instead = command match {
      case Command.DELETE => "write the keys to delete with option deleteWhen"
      case _ => "INSERT INTO replaces the rows of the same keys, and option deleteWhen deletes"
    }
    new UnsupportedOperationException(
      s"$command is not for cowstate tables, which are written by key: $instead. See " +
        "\"Say which row wins\" in docs/how-to/state-as-a-table.md")
  }

  def notInstalled(python: String): Exception = new IllegalStateException(
    s"the Python that Spark runs, $python, has not cowstate's data source (module " +
      "pyspark_cowstate): install cowstate there, or set PYSPARK_PYTHON and " +
      "PYSPARK_DRIVER_PYTHON to an interpreter that has it before the session starts")
}
