package cowstate.tests

import java.io.FileNotFoundException
import java.net.URI
import java.nio.file.{Files, NoSuchFileException}
import java.nio.file.attribute.{PosixFileAttributes, PosixFilePermission}
import scala.annotation.unused
import scala.jdk.CollectionConverters._

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{ChecksumFs, DelegateToFileSystem, FileStatus, FsConstants}
import org.apache.hadoop.fs.{LocalFileSystem, Path, RawLocalFileSystem}
import org.apache.hadoop.fs.permission.FsPermission

/**
 * Hadoop's local files, without a process for each permission that it sets or reads. Hadoop calls
 * its native library for them, and runs `chmod`, `ls` and `readlink` where there is none, as in
 * PySpark. What the files are and how they are written is Hadoop's.
 */
final class RawLocalFiles extends RawLocalFileSystem {
  override def setPermission(path: Path, permission: FsPermission): Unit = {
    // From read by owner, the highest bit, to execute by others, the lowest.
    val granted = PosixFilePermission.values.filter { permit =>
      (permission.toShort & (1 << (8 - permit.ordinal))) != 0
    }
    try Files.setPosixFilePermissions(pathToFile(path).toPath, granted.toSet.asJava)
    catch { case _: NoSuchFileException => throw missing(path) }
  }

  override def getFileStatus(path: Path): FileStatus = {
    val status = super.getFileStatus(path)
    val attributes =
      try Files.readAttributes(pathToFile(path).toPath, classOf[PosixFileAttributes])
      catch { case _: NoSuchFileException => throw missing(path) }
    val granted = attributes.permissions.asScala.map(permit => 1 << (8 - permit.ordinal)).sum
    new FileStatus(
      status.getLen,
      status.isDirectory,
      status.getReplication,
      status.getBlockSize,
      status.getModificationTime,
      status.getAccessTime,
      new FsPermission(granted.toShort),
      attributes.owner.getName,
      attributes.group.getName,
      status.getPath)
  }

  override def getFileLinkStatus(path: Path): FileStatus =
    if (Files.isSymbolicLink(pathToFile(path).toPath)) super.getFileLinkStatus(path)
    else getFileStatus(path)

  private def missing(path: Path) = new FileNotFoundException(s"File $path does not exist")
}

/** For `fs.file.impl`. */
final class LocalFiles extends LocalFileSystem(new RawLocalFiles)

/** For `fs.AbstractFileSystem.file.impl`. */
final class LocalFilesOfContexts(@unused path: URI, conf: Configuration)
  extends ChecksumFs(new RawLocalFilesOfContexts(conf))

private final class RawLocalFilesOfContexts(conf: Configuration)
  extends DelegateToFileSystem(
    FsConstants.LOCAL_FS_URI, new RawLocalFiles, conf, "file", false) {
  override def getUriDefaultPort: Int = -1 // none
  override def isValidName(path: String): Boolean = true
}
