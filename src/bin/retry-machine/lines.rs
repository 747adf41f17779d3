//! Lines of bounded length from any reader, in constant memory.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

/// The longest line that is read into memory unless the user says otherwise.
pub const MAX_LINE: usize = 64 << 20;

/// One line, without its end.
pub enum Line<'b> {
    /// The line; a CR before the LF is dropped.
    Whole(&'b [u8]),
    /// A line that was longer than allowed and has been passed over.
    TooLong,
}

/// Reads lines of at most `max` bytes and counts them.
pub struct Lines<R> {
    reader: R,
    max: usize,
    buffer: Vec<u8>,
    number: u64,
    bytes: u64,
}

impl<R: BufRead> Lines<R> {
    pub fn new(reader: R, max: usize) -> Self {
        Self {
            reader,
            max,
            buffer: Vec::new(),
            number: 0,
            bytes: 0,
        }
    }

    /// The 1-based number of the last line.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// How many bytes have been read.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The next line; None at the end of input.
    pub fn next_line(&mut self) -> io::Result<Option<Line<'_>>> {
        self.buffer.clear();
        let mut too_long = false;
        let mut any = false;
        loop {
            let chunk = match self.reader.fill_buf() {
                Ok(chunk) => chunk,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            if chunk.is_empty() {
                if !any {
                    return Ok(None);
                }
                break;
            }
            any = true;
            let end = memchr(chunk);
            let piece = &chunk[..end.unwrap_or(chunk.len())];
            if !too_long {
                if self.buffer.len() + piece.len() > self.max {
                    too_long = true;
                    self.buffer = Vec::new();
                } else {
                    self.buffer.extend_from_slice(piece);
                }
            }
            let used = end.map_or(chunk.len(), |end| end + 1);
            self.reader.consume(used);
            self.bytes += used as u64;
            if end.is_some() {
                break;
            }
        }
        self.number += 1;
        if too_long {
            return Ok(Some(Line::TooLong));
        }
        if self.buffer.last() == Some(&b'\r') {
            self.buffer.pop();
        }
        Ok(Some(Line::Whole(&self.buffer)))
    }
}

fn memchr(bytes: &[u8]) -> Option<usize> {
    bytes.iter().position(|byte| *byte == b'\n')
}

/// Whether there is nothing on the line.
pub fn is_blank(line: &[u8]) -> bool {
    line.iter().all(u8::is_ascii_whitespace)
}

/// Whether the path stands for standard input.
pub fn is_stdin(file: &Path) -> bool {
    file == Path::new("-")
}

/// A reader of a file or of standard input, and the size in bytes if it is known.
pub fn open(file: &Path) -> io::Result<(Box<dyn BufRead>, Option<u64>)> {
    if is_stdin(file) {
        return Ok((Box::new(io::stdin().lock()), None));
    }
    let open = File::open(file)?;
    let metadata = open.metadata()?;
    if metadata.is_dir() {
        return Err(io::Error::other("is a directory; give the files in it"));
    }
    let size = metadata.is_file().then_some(metadata.len());
    Ok((Box::new(BufReader::with_capacity(1 << 18, open)), size))
}
