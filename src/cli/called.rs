//! How this program was called, so that the commands in its hints work as pasted.
//!
//! Guarantees: a hint begins with the program as it was typed and the options that say which platform and project are meant, as far as
//! the command line gave them; never with a token.

use std::ffi::OsStr;
use std::sync::OnceLock;

use clap::ArgMatches;
use clap::parser::ValueSource;

/// What every hint begins with.
static CALLED: OnceLock<String> = OnceLock::new();

/// The options that hints repeat, by their id and as they are typed.
const REPEATED: [(&str, &str); 5] =
    [("config", "--config"), ("data_dir", "--data-dir"), ("server", "--server"), ("ca_file", "--ca-file"), ("project", "--project")];

/// Keeps how the program was called; once, at its start.
pub fn remember(program: Option<&OsStr>, matches: &ArgMatches) {
    let _ = CALLED.set(beginning(program, matches));
}

/// The command that does `rest`, such as `cluster list`, as the person would type it.
pub fn command(rest: &str) -> String {
    format!("{} {rest}", CALLED.get().map_or("kubebyon", String::as_str))
}

/// Whether the command line named the project, so that hints do too.
pub fn names_project() -> bool {
    CALLED.get().is_some_and(|called| called.contains(" --project "))
}

fn beginning(program: Option<&OsStr>, matches: &ArgMatches) -> String {
    let mut words = vec![program.map_or_else(|| "kubebyon".to_owned(), quoted)];
    for (id, option) in REPEATED {
        if matches.value_source(id) == Some(ValueSource::CommandLine)
            && let Some(value) = matches.get_raw(id).and_then(Iterator::last)
        {
            words.extend([option.to_owned(), quoted(value)]);
        }
    }
    words.join(" ")
}

/// A word as a POSIX shell takes it.
fn quoted(word: &OsStr) -> String {
    let text = word.to_string_lossy();
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=@%+,".contains(c);
    if !text.is_empty() && text.chars().all(plain) { text.into_owned() } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    fn begun(line: &[&str]) -> String {
        let matches = crate::cli::Cli::command().try_get_matches_from(line).unwrap();
        beginning(line.first().map(OsStr::new), &matches)
    }

    #[test]
    fn hints_repeat_the_program_and_what_was_said_of_the_platform() {
        assert_eq!(begun(&["kubebyon", "cluster", "list"]), "kubebyon");
        assert_eq!(
            begun(&["./target/kubebyon", "cluster", "list", "--project", "shop", "--config", "/my files/k.yaml", "--token", "s3cret"]),
            "./target/kubebyon --config '/my files/k.yaml' --project shop"
        );
        assert_eq!(begun(&["kubebyon", "--data-dir=/srv/it's", "job", "list"]), r"kubebyon --data-dir '/srv/it'\''s'");
    }
}
