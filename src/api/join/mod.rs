//! What machines ask before they are nodes, and when they are told that they are none any more: `/join.sh` and `/join/v1/`.
//!
//! No caller signs in here: a machine shows a join token, or proves a kubelet's key. Guarantees: a token that is not there and a secret
//! that is wrong get one answer, and so do a node that is unknown and a signature that is wrong; what else is wrong with a token is told
//! only to who knows its secret. A use is counted by the job that signs, so asking again uses nothing up. What machines say of themselves
//! is cut to length and freed of control characters before it is kept. Every path is slowed down by source and bounded in size.

mod fate;
mod limits;
mod members;
mod proof;
mod script;
mod steps;

pub use fate::*;
pub use limits::Limits;
pub use members::*;
pub(crate) use script::Way;
pub use script::*;
pub use steps::*;

/// The most that a body here may have, in bytes: a request for a certificate, and labels and taints in plenty.
pub const BODY_LIMIT: usize = 64 * 1024;

/// A text of a stranger's for people: on one line, without what a terminal would obey, cut to so many characters.
fn plain(text: &str, most: usize) -> String {
    let one_line = text.chars().map(|c| if c.is_whitespace() { ' ' } else { c });
    // Marks of direction make a line read as what it is not.
    let directs = |c: &char| matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}');
    one_line.filter(|c| !c.is_control() && !directs(c)).take(most).collect::<String>().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_strangers_say_is_one_plain_line() {
        assert_eq!(plain(" a\tb\r\nc\u{1b}[31m\u{202e}d\u{0} ", 100), "a b  c[31md");
        assert_eq!(plain("ééééé", 3), "ééé");
        assert_eq!(plain("\u{1b}\u{7}", 10), "");
    }
}
