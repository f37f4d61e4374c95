package org.apache.spark.sql.execution.datasources.v2.cowstate

import java.util.{Locale, Map => JavaMap}

import scala.util.Try

import org.apache.spark.api.python.PythonUtils
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.connector.catalog.{Table, TableProvider}
import org.apache.spark.sql.connector.expressions.Transform
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2
import org.apache.spark.sql.sources.DataSourceRegister
import org.apache.spark.sql.types.StructType
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/**
 * Provider of format("cowstate") in a session with this jar: the data source in Python, with two
 * things that Spark denies to a source in Python.
 *
 *   output mode update     the rows of an aggregation are upserts, as the rows of append are
 *   tables of the catalog  Spark keeps path and options, and tells a source in Python neither
 *
 * Spark prefers a source of its class path to a source in Python of the same name. The source in
 * Python still does all reads and writes.
 */
class CowStateTableProvider extends TableProvider with DataSourceRegister {
  import CowStateTableProvider._

  private lazy val source = newSource()

  override def shortName(): String = Name

  override def supportsExternalMetadata(): Boolean = true

  override def inferSchema(options: CaseInsensitiveStringMap): StructType =
    source.inferSchema(CatalogOptions.of(options).fold(options)(_.own))

  override def getTable(
      schema: StructType,
      partitioning: Array[Transform],
      properties: JavaMap[String, String]): Table =
    CatalogOptions.of(properties) match {
      case Some(catalog) =>
        val columns =
          if (isNew(properties)) created(schema, partitioning, catalog) else known(schema, catalog)
        new CowStateTable(() => newSource(), columns, catalog.path, Some(catalog))
      case None =>
        if (partitioning.nonEmpty) throw CowStateTableErrors.partitioned()
        new CowStateTable(() => source, schema, properties.get("path"), None)
    }

  /**
   * Return the columns of a table that is being created. If the table exists already, return its
   * present columns.
   */
  private def created(
      declared: StructType,
      partitioning: Array[Transform],
      catalog: CatalogOptions): StructType = {
    if (partitioning.nonEmpty) throw CowStateTableErrors.partitioned()
    declared.find(_.getCurrentDefaultValue().isDefined)
      .foreach(column => throw CowStateTableErrors.defaultOf(column.name))
    newSource()
      .inferSchema(catalog.declaring(Some(declared), catalog.besideOptions, mayLackKeys = true))
  }

  /**
   * Return the present columns of a table, followed by the columns that only the catalog knows: the
   * table gets these columns when they are written. If nothing was written yet, or the table cannot
   * be read, return the columns of the catalog. A read then fails with the reason, and the table
   * can be dropped all the same.
   */
  private def known(declared: StructType, catalog: CatalogOptions): StructType = {
    // A table keeps no NOT NULL: rows from before a column was added have a null in the column.
    val nullable = declared.map(_.copy(nullable = true))
    Try(source.inferSchema(catalog.own)).map { actual =>
      val names = actual.fieldNames.map(_.toLowerCase(Locale.ROOT)).toSet
      StructType(actual ++ nullable.filterNot(field => names(field.name.toLowerCase(Locale.ROOT))))
    }.getOrElse(StructType(nullable))
  }
}

object CowStateTableProvider {
  val Name = "cowstate"

  /** Return a source in Python. A source keeps the options of its first request. */
  def newSource(): PythonDataSourceV2 = {
    if (!SparkSession.active.sessionState.dataSourceManager.dataSourceExists(Name)) {
      throw CowStateTableErrors.notInstalled(PythonUtils.defaultPythonExec)
    }
    val source = new PythonDataSourceV2
    source.setShortName(Name)
    source
  }

  /** True if Spark creates the table. To load an existing table, Spark passes a plain map. */
  private def isNew(properties: JavaMap[String, String]): Boolean =
    properties.isInstanceOf[CaseInsensitiveStringMap]
}
