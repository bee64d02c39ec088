//! The ClientHello parser on any bytes: it never panics, its answer never changes with more bytes, and enough bytes are always
//! answered.
#![no_main]

use kubebyon::proxy::client_hello::{MAX_INPUT, Parsed, parse};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let whole = parse(bytes);
    assert!(whole != Parsed::Incomplete || bytes.len() < MAX_INPUT);
    for end in (0..bytes.len()).step_by(1 + bytes.len() / 64) {
        let part = parse(&bytes[..end]);
        assert!(part == Parsed::Incomplete || part == whole, "{end} of {} bytes: {part:?}, then {whole:?}", bytes.len());
    }
});
