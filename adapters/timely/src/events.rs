//! Files of events: contract 1's columns in Parquet.

use std::fs::File;
use std::path::PathBuf;
use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use parquet::basic::{Compression, Encoding};
use parquet::column::writer::ColumnCloseResult;
use parquet::data_type::{ByteArray, ByteArrayType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::ParquetMetaDataReader;
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterVersion};
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::{ColumnPath, Type};

use crate::Error;
use crate::arrivals::Inbox;
use crate::directory::Directory;
use crate::record::{APPLICATIONS, BOOTSTRAP, Kind, NAMES, Record, TYPES};
use crate::send::Portion;

/// Rows of a row group; a reader skips by them.
const GROUP: usize = 128 * 1024;

const SCHEMA: &str = "
    REQUIRED INT32 worker;
    REQUIRED INT64 seq;
    REQUIRED INT64 epoch;
    REQUIRED INT64 t_ns;
    REQUIRED BYTE_ARRAY kind (UTF8);
    OPTIONAL BYTE_ARRAY activity (UTF8);
    OPTIONAL INT64 operator;
    OPTIONAL INT64 channel;
    OPTIONAL INT64 scope;
    OPTIONAL INT32 peer;
    OPTIONAL INT64 message_seq;
    OPTIONAL INT64 records;
    OPTIONAL INT64 bytes;
    OPTIONAL INT64 timeout_ns;
";

static TYPE: LazyLock<Arc<Type>> = LazyLock::new(|| schema(""));
static TYPE_WITH_ARRIVALS: LazyLock<Arc<Type>> = LazyLock::new(|| schema("OPTIONAL INT64 arrived_ns;"));

fn schema(more: &str) -> Arc<Type> {
    let text = format!("message schema {{ {SCHEMA} {more} }}");
    Arc::new(parse_message_type(&text).expect("the schema is written correctly"))
}

static KINDS: LazyLock<[ByteArray; NAMES.len()]> = // Static bytes are copied without counting references.
    LazyLock::new(|| NAMES.map(|name| ByteArray::from(Bytes::from_static(name.as_bytes()))));

static ACTIVITIES: LazyLock<[ByteArray; TYPES.len()]> =
    LazyLock::new(|| TYPES.map(|name| ByteArray::from(Bytes::from_static(name.as_bytes()))));

static PROPERTIES: LazyLock<Arc<WriterProperties>> = LazyLock::new(|| Arc::new(properties()));

/// Properties of every Parquet file of a trace.
fn properties() -> WriterProperties {
    let mut properties = WriterProperties::builder()
        .set_writer_version(WriterVersion::PARQUET_1_0)
        .set_compression(Compression::LZ4_RAW)
        .set_statistics_enabled(EnabledStatistics::None)
        .set_max_row_group_row_count(Some(GROUP))
        .set_dictionary_enabled(false);
    // Few programs state activities: where none is stated, readers see it here and pass over the column.
    for name in ["worker", "epoch", "t_ns", "seq", "activity"] {
        properties = properties.set_column_statistics_enabled(name.into(), EnabledStatistics::Chunk);
    }
    for name in ["kind", "activity"] {
        properties = properties.set_column_dictionary_enabled(ColumnPath::from(name), true);
    }
    // Neighbouring numbers differ by little.
    for name in [
        "worker",
        "seq",
        "epoch",
        "t_ns",
        "operator",
        "channel",
        "scope",
        "peer",
        "message_seq",
        "records",
        "bytes",
        "timeout_ns",
        "arrived_ns",
    ] {
        properties = properties.set_column_encoding(ColumnPath::from(name), Encoding::DELTA_BINARY_PACKED);
    }
    properties.build()
}

/// A column that may be null.
#[derive(Debug, Default)]
struct Optional<T> {
    values: Vec<T>,
    levels: Vec<i16>,
}

impl<T> Optional<T> {
    #[inline]
    fn push(&mut self, value: Option<T>) {
        self.levels.push(i16::from(value.is_some()));
        self.values.extend(value);
    }

    fn clear(&mut self) {
        self.values.clear();
        self.levels.clear();
    }
}

/// Columns of rows that were not encoded yet.
#[derive(Debug, Default)]
struct Columns {
    seq: Vec<i64>,
    epoch: Vec<i64>,
    t_ns: Vec<i64>,
    kind: Vec<ByteArray>,
    activity: Optional<ByteArray>,
    operator: Optional<i64>,
    channel: Optional<i64>,
    scope: Optional<i64>,
    peer: Optional<i32>,
    message_seq: Optional<i64>,
    records: Optional<i64>,
    bytes: Optional<i64>,
    timeout_ns: Optional<i64>,
    /// Empty where nobody listens to arrivals.
    arrived_ns: Optional<i64>,
}

impl Columns {
    #[inline]
    fn push(&mut self, record: &Record, seq: i64, epoch: i64) {
        use Kind::{ApplicationStart, ApplicationStop, IdleStop, Park, ProgressReceive, ProgressSend, PushProgress};
        use Kind::{Receive, Send, Spawn, Start, Stop};
        let Record { t, message, count, id, scope, peer, kind } = *record;
        let data = matches!(kind, Send | Receive);
        let progress = matches!(kind, ProgressSend | ProgressReceive);
        self.seq.push(seq);
        self.epoch.push(epoch);
        self.t_ns.push(t as i64);
        self.kind.push(KINDS[kind as usize].clone());
        let typed = kind == ApplicationStart && count > 0;
        self.activity.push(typed.then(|| ACTIVITIES[count as usize].clone()));
        self.operator.push(match kind {
            Start | Stop | PushProgress => Some(i64::from(id)),
            ApplicationStart | ApplicationStop => Some(APPLICATIONS + i64::from(id)),
            _ => None,
        });
        self.channel.push((data || progress).then_some(i64::from(id)));
        self.scope.push(progress.then_some(i64::from(scope)));
        self.peer.push((data || matches!(kind, ProgressReceive | Spawn)).then_some(peer as i32));
        self.message_seq.push((data || progress).then_some(message as i64));
        self.records.push((data || progress || kind == IdleStop).then_some(count));
        self.bytes.push((data && id >= BOOTSTRAP).then_some(i64::from(scope)));
        self.timeout_ns.push((kind == Park && count >= 0).then_some(count));
    }

    fn len(&self) -> usize {
        self.t_ns.len()
    }

    fn clear(&mut self) {
        self.seq.clear();
        self.epoch.clear();
        self.t_ns.clear();
        self.kind.clear();
        self.activity.clear();
        for column in [
            &mut self.operator,
            &mut self.channel,
            &mut self.scope,
            &mut self.message_seq,
            &mut self.records,
            &mut self.bytes,
            &mut self.timeout_ns,
            &mut self.arrived_ns,
        ] {
            column.clear();
        }
        self.peer.clear();
    }
}

/// One file of events that is being written; readers do not see it until it is published.
pub(crate) struct EventFile {
    writer: SerializedFileWriter<File>,
    hidden: PathBuf,
    path: PathBuf,
    worker: u32,
    /// Number of the first row, and of the next one.
    first: i64,
    next: i64,
    /// Number of the last row.
    last: i64,
    /// Stretches of numbers that were dropped, first and last.
    lost: Vec<(i64, i64)>,
    rows: usize,
    columns: Columns,
}

impl EventFile {
    /// Begins the file `number` of a worker, whose first row has the number `seq`.
    ///
    /// With `arrivals` it says when messages arrived, as far as that is known.
    pub(crate) fn create(
        directory: &Directory,
        worker: u32,
        number: usize,
        seq: i64,
        arrivals: bool,
    ) -> Result<Self, Error> {
        let of = if arrivals { &TYPE_WITH_ARRIVALS } else { &TYPE };
        let path = directory.events(worker, number);
        let hidden = path.with_extension("parquet.tmp");
        let file = File::create(&hidden).map_err(Error::at(&hidden))?;
        let writer = SerializedFileWriter::new(file, Arc::clone(of), Arc::clone(&PROPERTIES));
        let writer = writer.map_err(|error| refused(&hidden, &error))?;
        Ok(Self {
            writer,
            hidden,
            path,
            worker,
            first: seq,
            next: seq,
            last: seq,
            lost: Vec::new(),
            rows: 0,
            columns: Columns::default(),
        })
    }

    /// Takes over the row groups of the file that was published under the same name, as they are.
    ///
    /// Whoever reads that one sees it until this one takes its place; what he knows of its row groups stays true.
    pub(crate) fn go_on(mut self) -> Result<Self, Error> {
        let published = File::open(&self.path).map_err(Error::at(&self.path))?;
        let rows = copy_groups(&published, &mut self.writer).map_err(|error| refused(&self.path, &error))?;
        self.rows = rows;
        Ok(self)
    }

    /// Number of rows, those that were published before included.
    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    /// The number after the last row, or after what was dropped behind it.
    pub(crate) fn next(&self) -> i64 {
        self.next
    }

    /// Appends events, the first of which is of `epoch`; returns the epoch after them.
    pub(crate) fn append(
        &mut self,
        records: &[Record],
        mut epoch: i64,
        mut inbox: Option<&mut Inbox>,
    ) -> Result<i64, Error> {
        for record in records {
            if record.kind == Kind::Lost {
                self.lost.push((self.next, self.next + record.count - 1));
                self.next += record.count;
                continue;
            }
            self.columns.push(record, self.next, epoch);
            if let Some(inbox) = &mut inbox {
                self.columns.arrived_ns.push(inbox.of(record));
            }
            self.last = self.next;
            self.next += 1;
            self.rows += 1;
            epoch += i64::from(record.kind == Kind::EpochEnd);
            if self.columns.len() == GROUP {
                self.encode()?;
            }
        }
        Ok(epoch)
    }

    fn encode(&mut self) -> Result<(), Error> {
        let written = write_group(&mut self.writer, &self.columns, self.worker as i32);
        written.map_err(|error| refused(&self.hidden, &error))?;
        self.columns.clear();
        Ok(())
    }

    /// Completes the file and lets readers see it.
    pub(crate) fn publish(mut self) -> Result<Portion, Error> {
        if self.columns.len() > 0 {
            self.encode()?;
        }
        self.writer.close().map_err(|error| refused(&self.hidden, &error))?;
        std::fs::rename(&self.hidden, &self.path).map_err(Error::at(&self.path))?;
        let Self { path, worker, first, last, lost, .. } = self;
        Ok(Portion { path, worker, first, last, lost })
    }
}

fn refused(path: &std::path::Path, error: &ParquetError) -> Error {
    Error::Write(format!("{}: {error}", path.display()))
}

/// Copies the row groups of a file without decoding them; returns how many rows they have.
fn copy_groups(from: &File, to: &mut SerializedFileWriter<File>) -> Result<usize, ParquetError> {
    let metadata = ParquetMetaDataReader::new().parse_and_finish(from)?;
    for group in metadata.row_groups() {
        let mut copy = to.next_row_group()?;
        for column in group.columns() {
            let close = ColumnCloseResult {
                bytes_written: column.compressed_size() as u64,
                rows_written: group.num_rows() as u64,
                metadata: column.clone(),
                bloom_filter: None,
                column_index: None,
                offset_index: None,
            };
            copy.append_column(from, close)?;
        }
        copy.close()?;
    }
    Ok(metadata.file_metadata().num_rows() as usize)
}

fn write_group(writer: &mut SerializedFileWriter<File>, columns: &Columns, worker: i32) -> Result<(), ParquetError> {
    let rows = columns.len();
    let mut group = writer.next_row_group()?;
    required::<Int32Type>(&mut group, &vec![worker; rows])?;
    required::<Int64Type>(&mut group, &columns.seq)?;
    required::<Int64Type>(&mut group, &columns.epoch)?;
    required::<Int64Type>(&mut group, &columns.t_ns)?;
    required::<ByteArrayType>(&mut group, &columns.kind)?;
    optional::<ByteArrayType>(&mut group, &columns.activity.values, &columns.activity.levels)?;
    optional::<Int64Type>(&mut group, &columns.operator.values, &columns.operator.levels)?;
    optional::<Int64Type>(&mut group, &columns.channel.values, &columns.channel.levels)?;
    optional::<Int64Type>(&mut group, &columns.scope.values, &columns.scope.levels)?;
    optional::<Int32Type>(&mut group, &columns.peer.values, &columns.peer.levels)?;
    optional::<Int64Type>(&mut group, &columns.message_seq.values, &columns.message_seq.levels)?;
    optional::<Int64Type>(&mut group, &columns.records.values, &columns.records.levels)?;
    optional::<Int64Type>(&mut group, &columns.bytes.values, &columns.bytes.levels)?;
    optional::<Int64Type>(&mut group, &columns.timeout_ns.values, &columns.timeout_ns.levels)?;
    if !columns.arrived_ns.levels.is_empty() {
        optional::<Int64Type>(&mut group, &columns.arrived_ns.values, &columns.arrived_ns.levels)?;
    }
    group.close()?;
    Ok(())
}

/// Writes the next column of a row group.
pub(crate) fn required<T: parquet::data_type::DataType>(
    group: &mut SerializedRowGroupWriter<'_, File>,
    values: &[T::T],
) -> Result<(), ParquetError> {
    column::<T>(group, values, None)
}

/// Writes the next column of a row group, with nulls where the level is 0.
pub(crate) fn optional<T: parquet::data_type::DataType>(
    group: &mut SerializedRowGroupWriter<'_, File>,
    values: &[T::T],
    levels: &[i16],
) -> Result<(), ParquetError> {
    column::<T>(group, values, Some(levels))
}

fn column<T: parquet::data_type::DataType>(
    group: &mut SerializedRowGroupWriter<'_, File>,
    values: &[T::T],
    levels: Option<&[i16]>,
) -> Result<(), ParquetError> {
    let mut column = group.next_column()?.ok_or_else(|| ParquetError::General("too many columns".to_owned()))?;
    column.typed::<T>().write_batch(values, levels, None)?;
    column.close()
}
