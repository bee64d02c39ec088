//! Frames of the tunnel on any bytes: they never panic, a frame is never longer than what came or than its limit, more bytes never change a
//! frame that is whole, and what was read is written and read again as the same.
#![no_main]

use kubebyon::tunnel::frame::{MAX_FROM_NODE, MAX_FROM_PLATFORM, MAX_OPENING, decode, encode};
use kubebyon::tunnel::protocol::{FromNode, FromPlatform, Opened, Opening};
use libfuzzer_sys::fuzz_target;
use serde::Serialize;
use serde::de::DeserializeOwned;

fn check<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(bytes: &[u8], limit: usize) {
    let Ok(Some((value, length))) = decode::<T>(bytes, limit) else { return };
    assert!(length <= bytes.len() && length <= limit + 4);
    assert!(matches!(decode::<T>(&bytes[..length - 1], limit), Ok(None)));
    // What is written may be longer than what was read: fields have defaults.
    if let Ok(written) = encode(&value, limit) {
        assert_eq!(decode::<T>(&written, limit).unwrap().unwrap(), (value, written.len()));
    }
}

fuzz_target!(|bytes: &[u8]| {
    check::<Opening>(bytes, MAX_OPENING);
    check::<Opened>(bytes, MAX_OPENING);
    check::<FromNode>(bytes, MAX_FROM_NODE);
    check::<FromPlatform>(bytes, MAX_FROM_PLATFORM);
});
