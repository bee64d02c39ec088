//! Logs: lines on stderr, as text or JSON, whose level can change while the process runs.
//!
//! No colours where stderr is no terminal, and no times where journald adds its own. Panics become log lines too.
//! May import: nothing of ours.

use std::io::IsTerminal as _;

use anyhow::Context as _;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer, Registry, reload};

/// How lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// The running log.
#[derive(Clone)]
pub struct Telemetry {
    filter: reload::Handle<EnvFilter, Registry>,
}

impl Telemetry {
    /// Begins to log to stderr; once a process.
    pub fn init(level: &str, format: Format) -> anyhow::Result<Self> {
        let look = Look {
            format,
            colours: std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()),
            times: std::env::var_os("JOURNAL_STREAM").is_none(),
        };
        let (subscriber, filter) = build(level, look, std::io::stderr)?;
        subscriber.try_init().context("logging is set up already")?;
        std::panic::set_hook(Box::new(|info| {
            let place = info.location().map(ToString::to_string).unwrap_or_default();
            let payload = info.payload();
            let text = payload.downcast_ref::<&str>().copied().or_else(|| payload.downcast_ref::<String>().map(String::as_str));
            let text = text.unwrap_or("without a message");
            tracing::error!(place, backtrace = %std::backtrace::Backtrace::capture(), "panic: {text}");
        }));
        Ok(Self { filter })
    }

    /// Changes the level, such as `debug` or `info,kubebyon::proxy=debug`.
    pub fn set_level(&self, level: &str) -> anyhow::Result<()> {
        self.filter.reload(parse(level)?).context("the log's level could not be changed")
    }
}

/// How lines look, all said.
#[derive(Debug, Clone, Copy)]
struct Look {
    format: Format,
    colours: bool,
    times: bool,
}

fn parse(level: &str) -> anyhow::Result<EnvFilter> {
    EnvFilter::builder().parse(level).with_context(|| format!("{level:?} is no log level; use error, warn, info, debug or trace"))
}

type Subscriber = Box<dyn tracing::Subscriber + Send + Sync>;

fn build<W>(level: &str, look: Look, writer: W) -> anyhow::Result<(Subscriber, reload::Handle<EnvFilter, Registry>)>
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let (filter, handle) = reload::Layer::new(parse(level)?);
    let base = tracing_subscriber::fmt::layer().with_writer(writer).with_ansi(look.colours);
    let lines = match (look.format, look.times) {
        (Format::Json, _) => base.json().flatten_event(true).boxed(),
        (Format::Text, true) => base.boxed(),
        (Format::Text, false) => base.without_time().boxed(),
    };
    Ok((Box::new(tracing_subscriber::registry().with(filter).with(lines)), handle))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl std::io::Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn written(format: Format, level: &str, work: impl FnOnce(&Telemetry)) -> String {
        let kept = Kept::default();
        let writer = kept.clone();
        let (subscriber, filter) = build(level, Look { format, colours: false, times: false }, move || writer.clone()).unwrap();
        tracing::subscriber::with_default(subscriber, || work(&Telemetry { filter }));
        String::from_utf8(std::mem::take(&mut *kept.0.lock().unwrap())).unwrap()
    }

    #[test]
    fn text_has_no_colours_and_json_is_one_object_a_line() {
        let text = written(Format::Text, "info", |_| tracing::info!(cluster = "demo", "ready"));
        assert_eq!(text, " INFO kubebyon::runtime::telemetry::tests: ready cluster=\"demo\"\n");
        let json = written(Format::Json, "info", |_| {
            tracing::info!(cluster = "de\nmo", "ready");
            tracing::warn!("second");
        });
        let lines: Vec<serde_json::Value> = json.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!((lines.len(), lines[0]["cluster"].as_str(), lines[1]["level"].as_str()), (2, Some("de\nmo"), Some("WARN")));
    }

    #[test]
    fn the_level_changes_while_it_runs() {
        let text = written(Format::Text, "warn", |telemetry| {
            tracing::info!("hidden");
            telemetry.set_level("info,kubebyon=debug").unwrap();
            tracing::debug!("shown");
            assert!(telemetry.set_level("=,=").is_err());
            tracing::debug!("still shown");
        });
        assert!(!text.contains("hidden") && text.contains(": shown") && text.contains("still shown"), "{text}");
    }
}
