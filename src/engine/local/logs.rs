//! Reading components' logs, and keeping them from growing without end.
//!
//! Child processes append to their logs, so a log can be cut in place: its text is copied beside it and the file is emptied; what is
//! written in between goes lost. Readers notice both that and a file that another took the place of (the API server's own rotation of
//! its audit log). May import: nothing of ours.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream;

use crate::engine::LogStream;

/// A log is cut at this size.
pub const ROTATE_AT: u64 = 20 << 20;
/// Longer lines are given in pieces.
const LONGEST_LINE: u64 = 64 << 10;
/// How often a followed file is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Where the text of a log goes when it is cut.
pub fn previous(log: &Path) -> PathBuf {
    let mut name = log.as_os_str().to_owned();
    name.push(".1");
    name.into()
}

/// Cuts a log that has reached `limit` bytes, keeping its text as [`previous`]. Gives whether it did; one that is not there is short enough.
pub fn rotate(log: &Path, limit: u64) -> io::Result<bool> {
    let mut file = match std::fs::OpenOptions::new().read(true).write(true).open(log) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
    };
    if file.metadata()?.len() < limit {
        return Ok(false);
    }
    let kept = previous(log);
    let draft = kept.with_extension("1.tmp");
    let mut copy = std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
    // The end of it, when it grew far beyond the limit meanwhile.
    file.seek(SeekFrom::Start(file.metadata()?.len().saturating_sub(2 * limit)))?;
    io::copy(&mut file, &mut copy)?;
    file.set_len(0)?;
    std::fs::rename(draft, kept)?;
    Ok(true)
}

/// What a program that ended said last of why, as one text; empty when it said nothing. Lines that tell of a failure are preferred, and
/// the stack traces of Go are left out.
pub fn last_words(log: &Path) -> String {
    let text = end_of(log, 256 << 10);
    let said: Vec<&str> = text.lines().filter(|l| !l.trim().is_empty() && !is_of_a_trace(l)).collect();
    // What was said long before is not why it ended.
    let recent = &said[said.len().saturating_sub(30)..];
    let telling: Vec<&str> = recent.iter().copied().filter(|l| tells_of_failure(l)).collect();
    let chosen = if telling.is_empty() { recent } else { &telling };
    let chosen = &chosen[chosen.len().saturating_sub(5)..];
    chosen.iter().map(|l| l.chars().take(400).collect()).collect::<Vec<String>>().join("\n")
}

fn tells_of_failure(line: &str) -> bool {
    let line = line.to_lowercase();
    ["panic:", "fatal", "error", " err=", "no space left"].iter().any(|mark| line.contains(mark))
}

/// Whether a line is of a goroutine's stack: its head, a function with its arguments, or an indented place.
fn is_of_a_trace(line: &str) -> bool {
    let function = line.ends_with(')') && line.split_once('(').is_some_and(|(name, _)| name.contains('.') && !name.contains(' '));
    line.starts_with('\t') || line.starts_with("goroutine ") || line.starts_with("created by ") || function
}

/// The end of a log, at most `bytes` of it.
fn end_of(log: &Path, bytes: u64) -> String {
    let read = || -> io::Result<Vec<u8>> {
        let mut file = File::open(log)?;
        let len = file.metadata()?.len();
        file.seek(SeekFrom::Start(len.saturating_sub(bytes)))?;
        let mut text = Vec::new();
        file.take(bytes).read_to_end(&mut text)?;
        Ok(text)
    };
    String::from_utf8_lossy(&read().unwrap_or_default()).into_owned()
}

/// The lines of a log, its kept past first: all, or the last `tail`; then, with `follow`, those that come.
pub async fn stream(log: PathBuf, tail: Option<usize>, follow: bool) -> io::Result<LogStream> {
    let (lines, reader) = tokio::task::spawn_blocking(move || open(log, tail)).await.map_err(io::Error::other)??;
    let past = stream::iter(lines.into_iter().map(Ok));
    let rest = stream::unfold((reader, follow, false), |(reader, follow, ended)| async move {
        if ended {
            return None;
        }
        let read = tokio::task::spawn_blocking(move || reader.more()).await.map_err(io::Error::other);
        match read {
            Ok(Ok((lines, reader))) => {
                let idle = lines.is_empty();
                if idle && follow {
                    tokio::time::sleep(LOOK_EVERY).await;
                }
                let ended = idle && !follow;
                let lines: Vec<io::Result<Bytes>> = lines.into_iter().map(Ok).collect();
                Some((stream::iter(lines), (reader, follow, ended)))
            }
            Ok(Err(error)) | Err(error) => Some((stream::iter(vec![Err(error)]), (Reader::default(), false, true))),
        }
    });
    Ok(past.chain(rest.flatten()).boxed())
}

/// A place in a log.
#[derive(Default)]
struct Reader {
    path: PathBuf,
    file: Option<BufReader<File>>,
    inode: u64,
    at: u64,
}

fn open(path: PathBuf, tail: Option<usize>) -> io::Result<(VecDeque<Bytes>, Reader)> {
    let mut lines = VecDeque::new();
    let mut reader = Reader { path, ..Reader::default() };
    if let Some(tail) = tail {
        for path in [previous(&reader.path), reader.path.clone()] {
            let Ok(file) = File::open(&path) else { continue };
            let inode = file.metadata()?.ino();
            let mut file = BufReader::new(file);
            let mut at = 0;
            while let Some(line) = line(&mut file)? {
                at += line.len() as u64;
                lines.push_back(line);
                if lines.len() > tail {
                    lines.pop_front();
                }
            }
            (reader.file, reader.inode, reader.at) = (Some(file), inode, at);
        }
    } else if let Ok(file) = File::open(previous(&reader.path)) {
        (reader.inode, reader.file) = (file.metadata()?.ino(), Some(BufReader::new(file)));
    }
    Ok((lines, reader))
}

impl Reader {
    /// The lines that are there by now, at most a few hundred at a time.
    fn more(mut self) -> io::Result<(Vec<Bytes>, Self)> {
        let mut lines = Vec::new();
        loop {
            if let Some(file) = &mut self.file {
                while lines.len() < 512
                    && let Some(line) = line(file)?
                {
                    self.at += line.len() as u64;
                    lines.push(line);
                }
            }
            if lines.len() >= 512 || !self.turn()? {
                return Ok((lines, self));
            }
        }
    }

    /// Goes to the file that stands under the name when it is another, or to the beginning when it was cut; gives whether it did.
    fn turn(&mut self) -> io::Result<bool> {
        let Ok(there) = std::fs::metadata(&self.path) else { return Ok(false) };
        if self.file.is_some() && there.ino() == self.inode {
            let cut = there.len() < self.at;
            if cut && let Some(file) = &mut self.file {
                file.seek(SeekFrom::Start(0))?;
                self.at = 0;
            }
            return Ok(cut);
        }
        let file = File::open(&self.path)?;
        (self.inode, self.at, self.file) = (file.metadata()?.ino(), 0, Some(BufReader::new(file)));
        Ok(true)
    }
}

/// The next whole line with its newline; a piece of one that is too long; `None` at the end. What is half written is left for later.
fn line(file: &mut BufReader<File>) -> io::Result<Option<Bytes>> {
    let mut text = Vec::new();
    file.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut text)?;
    if text.is_empty() {
        return Ok(None);
    }
    if text.last() != Some(&b'\n') && (text.len() as u64) < LONGEST_LINE {
        file.seek_relative(-(text.len() as i64))?;
        return Ok(None);
    }
    Ok(Some(text.into()))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    async fn collect(log: &Path, tail: Option<usize>) -> String {
        let lines: Vec<_> = stream(log.into(), tail, false).await.unwrap().collect().await;
        lines.into_iter().map(|l| String::from_utf8(l.unwrap().to_vec()).unwrap()).collect()
    }

    fn append(log: &Path, text: &str) {
        std::fs::OpenOptions::new().append(true).create(true).open(log).unwrap().write_all(text.as_bytes()).unwrap();
    }

    #[tokio::test]
    async fn tails_reach_into_what_was_kept() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("etcd.log");
        assert_eq!(collect(&log, None).await, "");
        assert!(!rotate(&log, 4).unwrap());
        append(&log, "a\nb\n");
        assert!(rotate(&log, 4).unwrap());
        append(&log, "c\nhalf");
        assert_eq!(collect(&log, None).await, "a\nb\nc\n");
        assert_eq!(collect(&log, Some(2)).await, "b\nc\n");
        assert_eq!(collect(&log, Some(0)).await, "");
        assert_eq!(last_words(&log), "c\nhalf");
        let long = "x".repeat(70_000);
        append(&log, &format!("{long}\n"));
        assert!(collect(&log, None).await.ends_with(&format!("half{long}\n")));
    }

    #[test]
    fn last_words_tell_why_and_not_where() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("etcd.log");
        assert_eq!(last_words(&log), "");
        append(&log, "error of a former run\n");
        append(&log, &"all is well\n".repeat(40));
        append(&log, "panic: write /data/etcd/wal: no space left on device\n\ngoroutine 1 [running]:\n");
        for nth in 0..100 {
            append(
                &log,
                &format!("go.etcd.io/etcd/server/v3/errors.(*Store).Fatal(0x{nth}, {{0x1, 0x2}})\n\tgo.etcd.io/errors/error.go:12 +0x1d\n"),
            );
        }
        append(&log, "created by main.main in goroutine 1\n\tmain.go:9 +0x1\n");
        assert_eq!(last_words(&log), "panic: write /data/etcd/wal: no space left on device");
        append(&log, &"bye\n".repeat(40));
        assert_eq!(last_words(&log), ["bye"; 5].join("\n"));
    }

    #[tokio::test]
    async fn following_survives_cuts_and_replacements() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("audit.log");
        append(&log, "one\ntwo\n");
        let mut lines = stream(log.clone(), Some(1), true).await.unwrap();
        let mut next = async || tokio::time::timeout(Duration::from_secs(5), lines.next()).await.unwrap().unwrap().unwrap();
        assert_eq!(next().await, "two\n");
        append(&log, "three\n");
        assert_eq!(next().await, "three\n");
        assert!(rotate(&log, 1).unwrap());
        append(&log, "4\n");
        assert_eq!(next().await, "4\n");
        std::fs::rename(&log, folder.path().join("audit-old.log")).unwrap();
        append(&log, "five\nsix\n");
        assert_eq!(next().await, "five\n");
        assert_eq!(next().await, "six\n");
    }
}
