package org.apache.spark.sql.execution.datasources.v2.cowstate

import java.util.{Collections, Map => JavaMap, Set => JavaSet}

import org.apache.spark.sql.connector.catalog._
import org.apache.spark.sql.connector.catalog.TableChange.{AddColumn, RemoveProperty, SetProperty}
import org.apache.spark.sql.connector.read.{Scan, ScanBuilder, SupportsPushDownRequiredColumns}
import org.apache.spark.sql.connector.write.{
  LogicalWriteInfo, RowLevelOperationBuilder, RowLevelOperationInfo, WriteBuilder
}
import org.apache.spark.sql.execution.datasources.v2.python.{
  PythonDataSourceCreationResult, PythonDataSourceV2, PythonScanBuilder, PythonTable,
  PythonWriteBuilder
}
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.internal.connector.SupportsStreamingUpdateAsAppend
import org.apache.spark.sql.types.{StructField, StructType}
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/**
 * Table, read and written by the source in Python. `catalog`: options of the table in the catalog
 * of Spark, None for a table named by a path.
 */
private[cowstate] final class CowStateTable(
    source: () => PythonDataSourceV2,
    columns: StructType,
    path: String,
    catalog: Option[CatalogOptions])
  extends SupportsRead with SupportsWrite with SupportsRowLevelOperations {
  import CowStateTableProvider.Name

  override def name(): String = s"$Name.`$path`"

  override def toString: String = name()

  override def properties(): JavaMap[String, String] =
    catalog.fold(Collections.emptyMap[String, String])(_.properties)

  override def columns(): Array[Column] = CatalogV2Util.structTypeToV2Columns(columns)

  override def capabilities(): JavaSet[TableCapability] =
    new PythonTable(source(), Name, columns).capabilities()

  override def newScanBuilder(options: CaseInsensitiveStringMap): ScanBuilder =
    new ScanOfNeededColumns(
      new SourceOfScan(source()), columns, catalog.fold(options)(_.forRead(options)))

  override def newWriteBuilder(info: LogicalWriteInfo): WriteBuilder =
    new UpsertBuilder(source(), catalog.fold(info)(_.forWrite(info)))

  /**
   * Check that Spark's catalog may make these changes to the table. A change may set or remove
   * options for reads and writes, set or remove properties without a meaning for cowstate, or add
   * columns. The table itself gets a new column when rows with the column are first written.
   */
  def checkChanges(changes: Seq[TableChange]): Unit = catalog.foreach { before =>
    val added = changes.flatMap {
      case add: AddColumn if add.position == null && add.fieldNames.length == 1 =>
        Some(StructField(add.fieldNames.head, add.dataType, add.isNullable))
      case set: SetProperty if !CatalogOptions.isFixed(set.property) => None
      case remove: RemoveProperty if !CatalogOptions.isFixed(remove.property) => None
      case other => throw CowStateTableErrors.unknownToTable(other, path)
    }
    val after = before.changed(changes)
    CatalogOptions.otherColumns(before, after)
      .foreach(option => throw CowStateTableErrors.columnsOf(option))
    val beside = changes.collect {
      case set: SetProperty if !CatalogOptions.isOption(set.property) => set.property
    }
    // A change without a meaning for the table needs no table: the table may be away or lost.
    val asked = Option.when(added.nonEmpty || after.own != before.own)(columns ++ added)
    if (asked.nonEmpty || beside.nonEmpty) {
      source().inferSchema(after.declaring(asked.map(StructType(_)), beside, mayLackKeys = false))
    }
  }

  override def newRowLevelOperationBuilder(info: RowLevelOperationInfo): RowLevelOperationBuilder =
    throw CowStateTableErrors.rowLevelOperation(info.command)
}

/**
 * Source of one scan. A PythonDataSourceV2 keeps the plan of its first scan, with the columns and
 * filters of this scan. So each scan has a PythonDataSourceV2 of its own. The scans share the data
 * source object in Python, through `shared`.
 */
private[cowstate] final class SourceOfScan(shared: PythonDataSourceV2) extends PythonDataSourceV2 {
  setShortName(CowStateTableProvider.Name)

  override def getOrCreateDataSourceInPython(
      shortName: String,
      options: CaseInsensitiveStringMap,
      columns: Option[StructType]): PythonDataSourceCreationResult =
    shared.getOrCreateDataSourceInPython(shortName, options, columns)
}

/** Scan builder whose scan gives only those columns of the table that the query needs. */
private[cowstate] final class ScanOfNeededColumns(
    source: PythonDataSourceV2, columns: StructType, options: CaseInsensitiveStringMap)
  extends PythonScanBuilder(source, CowStateTableProvider.Name, columns, options)
  with SupportsPushDownRequiredColumns {
  private var needed = columns

  /**
   * Note the needed columns. If the query needs no column, the scan gives the first column, so that
   * rows can be counted.
   */
  override def pruneColumns(required: StructType): Unit =
    // If the session allows pushed filters, Spark has planned the scan with all columns.
    if (!SQLConf.get.pythonFilterPushDown) {
      val kept = columns.filter(column => required.fieldNames.contains(column.name))
      needed = StructType(if (kept.isEmpty) columns.take(1) else kept)
    }

  override def build(): Scan =
    if (needed == columns) super.build()
    else new PythonScanBuilder(source, CowStateTableProvider.Name, needed, options).build()
}

/**
 * Write builder. Rows of output mode update replace the rows of the same keys, as rows of append
 * do.
 */
private[cowstate] final class UpsertBuilder(source: PythonDataSourceV2, info: LogicalWriteInfo)
  extends PythonWriteBuilder(source, CowStateTableProvider.Name, info)
  with SupportsStreamingUpdateAsAppend
