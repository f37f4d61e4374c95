package org.apache.spark.sql.execution.streaming.state.cowstate

import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.unsafe.Platform
import org.apache.spark.unsafe.array.ByteArrayMethods

/**
 * The copy-on-write map with incremental rehash of docs/explanation/provider.md, on pages of bytes.
 *
 * A chained hash table: a bucket is the address of a record, and records link to the next one. No
 * object stands for an entry. When the table is full one of twice the size is allocated, and every
 * operation moves the records of some buckets, at least `MinTransferred` of them.
 *
 * Time is counted in epochs. Opening a view ends one: what was written in it or before is shared
 * with the view, and a change to a shared record goes to a copy, while the view goes on reading the
 * old one. Records that no view shares are changed in place if the length of the value stays.
 * MapView tells why views stay right.
 *
 * Dead records are freed page by page: whenever enough bytes have died, the live records move out
 * of pages that are dead by more than half. Freeing a byte costs at most copying one.
 *
 * With `prefixOf`, records whose keys have the same prefix are linked with each other, and
 * `prefixScan` follows the links.
 *
 * Not safe for several threads, but for views: another thread may read one while this map changes.
 *
 * @param account   charged with the pages and tables
 * @param prefixOf  the prefix of a key; the row that it returns is used at once
 * @param checksums of the rows; what `get`, `prefixScan` and views return is verified as it says
 */
final class CopyOnWritePagedMap(
    account: MemoryAccount,
    private[cowstate] val prefixOf: Option[UnsafeRow => UnsafeRow],
    val checksums: RowChecksums = RowChecksums.Off) {
  import CopyOnWritePagedMap._
  import RecordPages._

  private val records =
    new RecordPages(if (prefixOf.isDefined) PrefixLinksBytes else 0, account)
  private val prefixes = prefixOf.map(_ => new CopyOnWritePagedMap(account, None))
  private var primary = newTable(InitialCapacity)
  private var rehashed: Array[Long] = _
  private var rehashIndex = 0
  private var entries = 0
  private var epoch = 1
  private val views = new OpenViews(account)
  /** Epoch of the newest open view, 0 if there is none: records of later epochs are not shared. */
  private var highestRequired = 0
  /** Before the record that `find` found last; any change makes it void. */
  private var predecessor = 0L
  private var compactAt = MinCompactBytes
  private val scratchKey = new UnsafeRow(0)
  private lazy val prefetched = new Array[Long](PrefetchWindow)
  /** Keeps the compiler from dropping the reads. */
  private[cowstate] var prefetchedSum = 0

  def size: Int = entries
  def currentEpoch: Int = epoch
  /** Bytes of the keys and values. */
  def rowBytes: Long = records.liveBytes - entries.toLong * records.headerBytes
  def pageCount: Int = records.pageCount + prefixes.map(_.pageCount).getOrElse(0)
  def deadBytes: Long = records.deadBytes + prefixes.map(_.deadBytes).getOrElse(0L)

  /** How much of a rehash is done, in percent; 100 when there is none. */
  def rehashPercent: Int =
    if (rehashed == null) 100 else (rehashIndex * 100L / primary.length).toInt

  /** End an epoch and begin the next, which is returned. */
  def beginEpoch(): Int = {
    epoch = Math.incrementExact(epoch)
    epoch
  }

  /** To be called before the map is filled: makes room for so many entries, if memory permits. */
  def reserve(expected: Long): Unit = if (rehashed == null) {
    val capacity = capacityFor(expected)
    if (capacity > primary.length && account.permits(capacity * 8L)) replaceTable(capacity)
  }

  /**
   * To be called after the map was filled: makes the table smaller if much less came than was
   * expected. That takes time of `size`, so a table that is one size too large stays.
   */
  def trim(): Unit = {
    val capacity = capacityFor(entries)
    if (rehashed == null && capacity < primary.length / 2) replaceTable(capacity)
  }

  private def replaceTable(capacity: Int): Unit = account.withoutLimit {
    val table = newTable(capacity)
    var index = 0
    while (index < primary.length) {
      moveBucket(index, table)
      index += 1
    }
    account.release(primary.length * 8L)
    primary = table
  }

  /** A copy of the value of a key, null if there is none. */
  def get(key: UnsafeRow, valueFields: Int): UnsafeRow = {
    val address = find(key)
    if (address == 0) null else verifiedValue(address, valueFields)
  }

  def contains(key: UnsafeRow): Boolean = find(key) != 0

  /** Put a row that has no checksum yet. */
  def put(key: UnsafeRow, value: UnsafeRow, undo: UndoLog): Unit =
    put(key, value, checksums.of(key, value), undo)

  /** Put a row whose key is not there. */
  def add(key: UnsafeRow, hash: Int, value: UnsafeRow, checksum: Int): Unit = {
    if (rehashed != null) rehashSome()
    insert(key, hash, value, checksum)
  }

  /**
   * To be called before many keys are looked up: brings what that reads into the processor's
   * caches. A lookup waits for the bucket, then for the record; here all buckets are fetched at
   * once, then all records.
   */
  def prefetch(hashes: Array[Int], count: Int): Unit = {
    var sum = 0
    var i = 0
    while (i < count) {
      prefetched(i) = head(hashes(i))
      i += 1
    }
    i = 0
    while (i < count) {
      val address = prefetched(i)
      if (address != 0) sum += records.getInt(address, Hash)
      i += 1
    }
    prefetchedSum = sum
  }

  /** Put a value; what it replaces goes to `undo`, unless that is null. */
  def put(key: UnsafeRow, value: UnsafeRow, checksum: Int, undo: UndoLog): Unit =
    put(key, key.hashCode, value, checksum, undo)

  def put(key: UnsafeRow, hash: Int, value: UnsafeRow, checksum: Int, undo: UndoLog): Unit = {
    val address = find(key, hash)
    if (address == 0) {
      if (undo != null) undo.logAbsent(key)
      insert(key, hash, value, checksum)
    } else {
      val modified = records.getInt(address, Modified)
      if (undo != null && modified < undo.epoch) logOld(undo, address)
      val valueLength = value.getSizeInBytes
      if (modified > highestRequired && records.getInt(address, ValueLength) == valueLength) {
        writeValue(address, value, checksum)
        records.putInt(address, Modified, epoch)
      } else {
        replace(address, predecessor, append(key, hash, value, checksum))
        compactIfDue()
      }
    }
  }

  /** Remove a key; returns whether it was there. Its value goes to `undo`, unless that is null. */
  def remove(key: UnsafeRow, undo: UndoLog): Boolean = {
    val address = find(key)
    if (address == 0) return false
    if (undo != null && records.getInt(address, Modified) < undo.epoch) logOld(undo, address)
    setNext(predecessor, records.getInt(address, Hash), records.getLong(address, Next))
    if (prefixOf.isDefined) unlinkPrefix(address)
    records.bury(address, epoch)
    entries -= 1
    compactIfDue()
    true
  }

  /** Copies of the entries whose key begins with a prefix, in no order. */
  def prefixScan(
      prefix: UnsafeRow, keyFields: Int, valueFields: Int): Array[(UnsafeRow, UnsafeRow)] = {
    val entries = Array.newBuilder[(UnsafeRow, UnsafeRow)]
    var address = prefixHead(prefix)
    while (address != 0) {
      val value = verifiedValue(address, valueFields)
      entries += ((copyOfKey(address, keyFields), value))
      address = records.getLong(address, PrefixNext)
    }
    entries.result()
  }

  /** What the map holds now. It stays readable, by any thread, until it is released. */
  def openView(): MapView = {
    val (pages, used) = records.contents
    val view = new MapView(this, pages, used, epoch, records.headerBytes)
    views.open(epoch)
    highestRequired = views.newest
    beginEpoch()
    view
  }

  private[cowstate] def release(view: MapView): Unit = {
    views.release(view.epoch)
    highestRequired = views.newest
  }

  /** The longer it waits, the less is alive in a page that it frees; dead bytes bound the wait. */
  private def compactIfDue(): Unit = if (records.deadBytes >= compactAt) {
    compact(MaxCompactBytes)
    val live = records.allocatedBytes - records.deadBytes
    compactAt = records.deadBytes + math.min(math.max(live, MinCompactBytes), MaxCompactBytes)
  }

  /**
   * Free pages that are dead by more than half, copying at most about `maxBytes`. The copies are
   * granted whatever the limit is: more than they take is freed.
   */
  def compact(maxBytes: Long): Unit = account.withoutLimit {
    var left = maxBytes
    var number = records.pollSparse()
    while (number != 0) {
      records.foreachLive(number) { address =>
        left -= records.sizeOf(address)
        move(address)
      }
      val born = records.bornIn(number)
      views.drop(records.drop(number), born, epoch)
      number = if (left > 0) records.pollSparse() else 0
    }
  }

  private def newTable(capacity: Int): Array[Long] = {
    account.acquire(capacity * 8L)
    new Array[Long](capacity)
  }

  /** Buckets move whole and in order, so those below `rehashIndex` have moved. */
  private def usesRehashed(hash: Int): Boolean =
    rehashed != null && (hash & (primary.length - 1)) < rehashIndex

  private def head(hash: Int): Long =
    if (usesRehashed(hash)) rehashed(hash & (rehashed.length - 1))
    else primary(hash & (primary.length - 1))

  private def setHead(hash: Int, address: Long): Unit =
    if (usesRehashed(hash)) rehashed(hash & (rehashed.length - 1)) = address
    else primary(hash & (primary.length - 1)) = address

  private def setNext(before: Long, hash: Int, address: Long): Unit =
    if (before == 0) setHead(hash, address) else records.putLong(before, Next, address)

  /** The record of a key, 0 if none; `predecessor` is the one before it, 0 for the head. */
  private def find(key: UnsafeRow): Long = find(key, key.hashCode)

  private def find(key: UnsafeRow, hash: Int): Long = {
    if (rehashed != null) rehashSome()
    val length = key.getSizeInBytes
    var before = 0L
    var address = head(hash)
    while (address != 0) {
      val page = records.page(address)
      val offset = records.offset(address)
      if (Platform.getInt(page, offset + Hash) == hash &&
          Platform.getInt(page, offset + KeyLength) == length &&
          ByteArrayMethods.arrayEquals(
            page, offset + records.headerBytes, key.getBaseObject, key.getBaseOffset, length)) {
        predecessor = before
        return address
      }
      before = address
      address = Platform.getLong(page, offset + Next)
    }
    0L
  }

  private def insert(key: UnsafeRow, hash: Int, value: UnsafeRow, checksum: Int): Unit = {
    if (rehashed == null && entries >= primary.length / 4 * 3 && primary.length < MaxCapacity) {
      rehashed = newTable(primary.length * 2)
      rehashIndex = 0
    }
    val address = append(key, hash, value, checksum)
    records.putLong(address, Next, head(hash))
    setHead(hash, address)
    entries += 1
    if (prefixOf.isDefined) linkPrefix(address, key)
  }

  /** Move the records of whole buckets, at least `MinTransferred` in all. */
  private def rehashSome(): Unit = {
    var moved = 0
    while (moved < MinTransferred && rehashIndex < primary.length) {
      moved += moveBucket(rehashIndex, rehashed)
      primary(rehashIndex) = 0
      rehashIndex += 1
    }
    if (rehashIndex == primary.length) {
      account.release(primary.length * 8L)
      primary = rehashed
      rehashed = null
    }
  }

  /** Link the records of a bucket of `primary` into another table; returns how many there were. */
  private def moveBucket(index: Int, into: Array[Long]): Int = {
    var moved = 0
    var address = primary(index)
    while (address != 0) {
      val next = records.getLong(address, Next)
      val bucket = records.getInt(address, Hash) & (into.length - 1)
      records.putLong(address, Next, into(bucket))
      into(bucket) = address
      address = next
      moved += 1
    }
    moved
  }

  private def append(key: UnsafeRow, hash: Int, value: UnsafeRow, checksum: Int): Long = {
    val address = records.allocate(key.getSizeInBytes, value.getSizeInBytes, epoch)
    records.putInt(address, Hash, hash)
    records.putInt(address, Modified, epoch)
    key.writeToMemory(records.page(address), records.offset(address) + records.headerBytes)
    writeValue(address, value, checksum)
    address
  }

  private def writeValue(address: Long, value: UnsafeRow, checksum: Int): Unit = {
    value.writeToMemory(records.page(address), valueOffset(address))
    records.putInt(address, Checksum, checksum)
  }

  private def valueOffset(address: Long): Long =
    records.offset(address) + records.headerBytes + records.getInt(address, KeyLength)

  /** A new record in the place of one that is shared or has another length. */
  private def replace(address: Long, before: Long, by: Long): Unit = {
    takePlace(address, by, before, records.getInt(address, Hash))
    records.bury(address, epoch)
  }

  /** Move a record to the tail, as it is. Its page is dropped afterwards. */
  private def move(address: Long): Unit = {
    val hash = records.getInt(address, Hash)
    var before = 0L
    var at = head(hash)
    while (at != address) {
      assert(at != 0, "a live record is in no bucket")
      before = at
      at = records.getLong(at, Next)
    }
    val copy = records.allocate(
      records.getInt(address, KeyLength), records.getInt(address, ValueLength), epoch)
    Platform.copyMemory(
      records.page(address), records.offset(address), records.page(copy), records.offset(copy),
      records.sizeOf(address))
    takePlace(address, copy, before, hash)
  }

  private def takePlace(old: Long, copy: Long, before: Long, hash: Int): Unit = {
    records.putLong(copy, Next, records.getLong(old, Next))
    setNext(before, hash, copy)
    if (prefixOf.isDefined) {
      val next = records.getLong(old, PrefixNext)
      val previous = records.getLong(old, PrefixPrevious)
      records.putLong(copy, PrefixNext, next)
      records.putLong(copy, PrefixPrevious, previous)
      if (next != 0) records.putLong(next, PrefixPrevious, copy)
      if (previous != 0) records.putLong(previous, PrefixNext, copy)
      else setPrefixHead(prefixOf.get(pointToKey(copy)), copy)
    }
  }

  private def logOld(undo: UndoLog, address: Long): Unit = {
    val keyLength = records.getInt(address, KeyLength)
    undo.logOld(
      records.page(address), records.offset(address) + records.headerBytes, keyLength,
      records.getInt(address, ValueLength), records.getInt(address, Checksum))
  }

  private def pointToKey(address: Long): UnsafeRow = {
    scratchKey.pointTo(
      records.page(address), records.offset(address) + records.headerBytes,
      records.getInt(address, KeyLength))
    scratchKey
  }

  private def copyOfKey(address: Long, fields: Int): UnsafeRow =
    copyOf(address, records.offset(address) + records.headerBytes,
      records.getInt(address, KeyLength), fields)

  private def verifiedValue(address: Long, fields: Int): UnsafeRow = {
    val valueLength = records.getInt(address, ValueLength)
    checksums.read(
      records.page(address), records.offset(address) + records.headerBytes,
      records.getInt(address, KeyLength) + valueLength, records.getInt(address, Checksum))
    copyOf(address, valueOffset(address), valueLength, fields)
  }

  private def copyOf(address: Long, offset: Long, length: Int, fields: Int): UnsafeRow =
    rowOf(records.page(address), offset, length, fields)

  private def prefixHead(prefix: UnsafeRow): Long = {
    val head = prefixes.get.get(prefix, 1)
    if (head == null) 0L else head.getLong(0)
  }

  private val headRow = {
    val row = new UnsafeRow(1)
    row.pointTo(new Array[Byte](16), 16)
    row
  }

  private def setPrefixHead(prefix: UnsafeRow, address: Long): Unit = {
    headRow.setLong(0, address)
    prefixes.get.put(prefix, headRow, null)
  }

  private def linkPrefix(address: Long, key: UnsafeRow): Unit = {
    val prefix = prefixOf.get(key)
    val first = prefixHead(prefix)
    records.putLong(address, PrefixNext, first)
    if (first != 0) records.putLong(first, PrefixPrevious, address)
    setPrefixHead(prefix, address)
  }

  private def unlinkPrefix(address: Long): Unit = {
    val next = records.getLong(address, PrefixNext)
    val previous = records.getLong(address, PrefixPrevious)
    if (next != 0) records.putLong(next, PrefixPrevious, previous)
    if (previous != 0) {
      records.putLong(previous, PrefixNext, next)
    } else {
      val prefix = prefixOf.get(pointToKey(address))
      if (next != 0) setPrefixHead(prefix, next) else prefixes.get.remove(prefix, null)
    }
  }

  /** For tests: every record is in its bucket, once, and the counts are right. */
  def checkInvariants(): Unit = {
    var seen = 0
    for ((table, isRehashed) <- Seq((primary, false), (rehashed, true)) if table != null) {
      for (bucket <- table.indices) {
        var address = table(bucket)
        while (address != 0) {
          val hash = records.getInt(address, Hash)
          assert((hash & (table.length - 1)) == bucket, "a record is in a wrong bucket")
          assert(usesRehashed(hash) == isRehashed, "a record is in the wrong table")
          assert(records.getInt(address, Died) == 0, "a dead record is in a bucket")
          seen += 1
          address = records.getLong(address, Next)
        }
      }
    }
    assert(seen == entries, s"$seen records in buckets, $entries entries")
    var live = 0
    var liveBytes = 0L
    records.numbers.foreach(number =>
      records.foreachLive(number) { address =>
        live += 1
        liveBytes += records.sizeOf(address)
      })
    assert(live == entries, s"$live live records, $entries entries")
    assert(liveBytes == records.liveBytes, s"$liveBytes live bytes, ${records.liveBytes} counted")
  }
}

object CopyOnWritePagedMap {
  private val InitialCapacity = 128
  private val MaxCapacity = 1 << 30
  private val MinTransferred = 4

  /** How many keys one call of `prefetch` may be given. */
  val PrefetchWindow = 128
  private val MinCompactBytes = 64L << 10
  private val MaxCompactBytes = 4L << 20

  /** The size of a table that is at most three quarters full with so many entries. */
  private def capacityFor(size: Long): Int = {
    var capacity = InitialCapacity
    while (capacity / 4 * 3 < size && capacity < MaxCapacity) capacity *= 2
    capacity
  }

  private[cowstate] def rowOf(
      base: Array[Byte], offset: Long, length: Int, fields: Int): UnsafeRow = {
    val bytes = new Array[Byte](length)
    Platform.copyMemory(base, offset, bytes, Platform.BYTE_ARRAY_OFFSET, length)
    val row = new UnsafeRow(fields)
    row.pointTo(bytes, length)
    row
  }
}
