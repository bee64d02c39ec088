//! How lists and single things are printed: `-o table|wide|json|yaml|name`.

use comfy_table::presets::NOTHING;
use comfy_table::{ContentArrangement, Table};
use serde::Serialize;

use crate::domain::Timestamp;

/// The form of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum Format {
    /// Columns for people.
    #[default]
    Table,
    /// More columns.
    Wide,
    /// JSON, as the API gives it.
    Json,
    /// YAML of the same.
    Yaml,
    /// One name a line, for scripts.
    Name,
}

/// Something that has columns.
pub trait Columns {
    /// The titles; `wide` has more of them.
    fn titles(wide: bool) -> Vec<&'static str>;
    /// The cells, as many as there are titles.
    fn cells(&self, wide: bool) -> Vec<String>;
    /// What other commands take as its name.
    fn name(&self) -> String;
}

/// Prints a list.
pub fn list<T: Columns + Serialize>(format: Format, items: &[T], empty: &str) -> anyhow::Result<()> {
    match format {
        Format::Table | Format::Wide if items.is_empty() => note(empty),
        Format::Table | Format::Wide => line(&table(format == Format::Wide, items)),
        Format::Json => line(&serde_json::to_string_pretty(&serde_json::json!({ "items": items }))?),
        Format::Yaml => line(serde_saphyr::to_string(&serde_json::json!({ "items": items }))?.trim_end()),
        Format::Name => items.iter().for_each(|item| line(&item.name())),
    }
    Ok(())
}

/// Prints one thing; `table` gives the form for people.
pub fn one<T: Columns + Serialize>(format: Format, item: &T) -> anyhow::Result<()> {
    match format {
        Format::Table | Format::Wide => line(&table(format == Format::Wide, std::slice::from_ref(item))),
        Format::Name => line(&item.name()),
        Format::Json | Format::Yaml => value(format, item)?,
    }
    Ok(())
}

/// Prints anything as JSON, or as YAML where that was asked for.
pub fn value<T: Serialize>(format: Format, value: &T) -> anyhow::Result<()> {
    match format {
        Format::Yaml => line(serde_saphyr::to_string(value)?.trim_end()),
        _ => line(&serde_json::to_string_pretty(value)?),
    }
    Ok(())
}

fn table<T: Columns>(wide: bool, items: &[T]) -> String {
    let mut table = Table::new();
    table.load_style(NOTHING).set_content_arrangement(ContentArrangement::Disabled).set_header(T::titles(wide));
    for item in items {
        table.add_row(item.cells(wide));
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 3));
    }
    table.lines().map(|line| line.trim_end().to_owned()).collect::<Vec<_>>().join("\n")
}

/// A line of the answer, on standard output. A reader that closed the pipe ends the program, as it would any filter.
pub fn line(text: &str) {
    use std::io::Write as _;
    match writeln!(std::io::stdout().lock(), "{text}") {
        Ok(()) => {}
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => std::process::exit(0),
        Err(error) => {
            note(&format!("error: standard output could not be written: {error}"));
            std::process::exit(1);
        }
    }
}

/// A word to the person, on standard error.
pub fn note(text: &str) {
    use std::io::Write as _;
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}

/// How long ago, or how long until, in the largest unit that tells enough: `45s`, `12m`, `5h`, `3d`.
pub fn span(duration: std::time::Duration) -> String {
    match duration.as_secs() {
        s @ 0..120 => format!("{s}s"),
        s @ 120..7_170 => format!("{}m", (s + 30) / 60),
        s @ 7_170..171_000 => format!("{}h", (s + 1_800) / 3_600),
        s => format!("{}d", (s + 43_200) / 86_400),
    }
}

/// A point in time for people: RFC 3339 to the second.
pub fn moment(at: Timestamp) -> String {
    let text = at.to_string();
    match text.split_once('.') {
        Some((seconds, _)) => format!("{seconds}Z"),
        None => text,
    }
}

/// Prints one thing a field a line, the values below each other; those without a value are left out.
pub fn fields(fields: &[(&str, String)]) {
    line(&aligned(fields));
}

fn aligned(fields: &[(&str, String)]) -> String {
    let width = fields.iter().map(|(title, _)| title.len()).max().unwrap_or(0) + 3;
    let indent = format!("\n{:width$}", "");
    let shown = fields.iter().filter(|(_, value)| !value.is_empty());
    shown.map(|(title, value)| format!("{title:<width$}{}", value.trim_end().replace('\n', &indent))).collect::<Vec<_>>().join("\n")
}

/// The age of something.
pub fn age(now: Timestamp, since: Timestamp) -> String {
    span(now.since(since))
}

/// A duration such as `90s`, `30m`, `8h` or `7d`.
pub fn parse_duration(text: &str) -> Result<std::time::Duration, String> {
    let refuse = || format!("{text:?} is no duration; it looks like 30m, 8h or 7d");
    let split = text.find(|c: char| !c.is_ascii_digit()).ok_or_else(refuse)?;
    let number: u64 = text[..split].parse().map_err(|_| refuse())?;
    let unit = match &text[split..] {
        "s" => 1,
        "m" => 60,
        "h" => 3_600,
        "d" => 86_400,
        _ => return Err(refuse()),
    };
    number.checked_mul(unit).map(std::time::Duration::from_secs).ok_or_else(refuse)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_stand_below_each_other_and_times_end_at_seconds() {
        let fields = [("ID", "7".to_owned()), ("HOST", String::new()), ("LAST ERROR", "no\nroom".to_owned())];
        assert_eq!(aligned(&fields), "ID           7\nLAST ERROR   no\n             room");
        for at in ["2026-11-30T23:53:57.123456Z", "2026-11-30T23:53:57Z"] {
            assert_eq!(moment(at.parse().unwrap()), "2026-11-30T23:53:57Z");
        }
    }

    #[test]
    fn durations_are_read_and_shown() {
        assert_eq!(parse_duration("8h").unwrap().as_secs(), 28_800);
        assert_eq!(span(parse_duration("7d").unwrap()), "7d");
        for (seconds, shown) in [(0, "0s"), (119, "119s"), (125, "2m"), (28_799, "8h"), (7_199, "2h"), (172_799, "2d")] {
            assert_eq!(span(std::time::Duration::from_secs(seconds)), shown);
        }
        for bad in ["", "8", "h", "8 h", "-1h", "1w", "99999999999999999999d", "999999999999999999d"] {
            assert!(parse_duration(bad).is_err(), "{bad}");
        }
    }
}
