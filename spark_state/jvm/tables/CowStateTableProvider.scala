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
 * format("cowstate") in a session that has this jar: the data source in Python, and what Spark does
 * not let one in Python have.
 *
 *   output mode update     the rows of an aggregation are upserts, as those of append are
 *   tables of the catalog  Spark keeps their path and options, and tells a source in Python neither
 *
 * Spark takes a source of its class path before one in Python of the same name. The source in
 * Python reads and writes all the same.
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

  /** The columns of a table that is being created: those that it has if it is there already. */
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
   * The columns that a table has by now, and after them those that only the catalog knows: the
   * table gets them when they are written. If nothing was written yet, or if the table cannot be
   * read, only the catalog's: a reader is told why, and whoever drops the table need not know.
   */
  private def known(declared: StructType, catalog: CatalogOptions): StructType = {
    // A table keeps no NOT NULL: rows from before a column was added have a null in it.
    val nullable = declared.map(_.copy(nullable = true))
    Try(source.inferSchema(catalog.own)).map { actual =>
      val names = actual.fieldNames.map(_.toLowerCase(Locale.ROOT)).toSet
      StructType(actual ++ nullable.filterNot(field => names(field.name.toLowerCase(Locale.ROOT))))
    }.getOrElse(StructType(nullable))
  }
}

object CowStateTableProvider {
  val Name = "cowstate"

  /** The source in Python. It keeps the options that it is asked with first. */
  def newSource(): PythonDataSourceV2 = {
    if (!SparkSession.active.sessionState.dataSourceManager.dataSourceExists(Name)) {
      throw CowStateTableErrors.notInstalled(PythonUtils.defaultPythonExec)
    }
    val source = new PythonDataSourceV2
    source.setShortName(Name)
    source
  }

  /** Whether a table is being created: Spark gives one that it loads a plain map. */
  private def isNew(properties: JavaMap[String, String]): Boolean =
    properties.isInstanceOf[CaseInsensitiveStringMap]
}
