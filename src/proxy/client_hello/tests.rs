//! Hellos of a real client, split and broken in every way that was reported in the field.

use std::sync::Arc;

use proptest::prelude::*;
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use rustls_pki_types::ServerName;

use super::*;

/// What a rustls client sends first, changed by `configure`.
pub(in crate::proxy) fn sample(name: &str, configure: impl FnOnce(&mut ClientConfig)) -> Vec<u8> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    configure(&mut config);
    let mut client = ClientConnection::new(Arc::new(config), ServerName::try_from(name.to_owned()).unwrap()).unwrap();
    let mut bytes = Vec::new();
    while client.wants_write() {
        client.write_tls(&mut bytes).unwrap();
    }
    bytes
}

/// A hello of at least `size` bytes: padded with protocols that nobody speaks.
pub(in crate::proxy) fn padded(size: usize) -> Vec<u8> {
    sample("api.tenant.example", |config| config.alpn_protocols = (0..size / 101).map(|i| vec![b'a' + (i % 26) as u8; 100]).collect())
}

/// A hello whose extensions are given; well formed otherwise.
fn with_extensions(extensions: &[u8]) -> Vec<u8> {
    let mut body = vec![3, 3];
    body.extend([7; 32]);
    body.extend([0, 0, 2, 0x13, 1, 1, 0]);
    body.extend((extensions.len() as u16).to_be_bytes());
    body.extend(extensions);
    in_one_record(&body)
}

fn in_one_record(body: &[u8]) -> Vec<u8> {
    let mut message = vec![1];
    message.extend(&(body.len() as u32).to_be_bytes()[1..]);
    message.extend(body);
    in_records(&message, message.len())
}

/// `message` in records of at most `size` bytes.
pub(in crate::proxy) fn in_records(message: &[u8], size: usize) -> Vec<u8> {
    message.chunks(size).flat_map(|part| [&[22, 3, 1], &(part.len() as u16).to_be_bytes()[..], part].concat()).collect()
}

/// The extension that asks for `name`.
fn server_name(name: &[u8]) -> Vec<u8> {
    let length = |extra: usize| ((name.len() + extra) as u16).to_be_bytes();
    [&[0, 0], &length(5)[..], &length(3)[..], &[0], &length(0)[..], name].concat()
}

fn asks_for(name: &str) -> Parsed {
    Parsed::Hello(ClientHello { server_name: Some(HostName::parse(name).unwrap()) })
}

const NAMELESS: Parsed = Parsed::Hello(ClientHello { server_name: None });
const MALFORMED: Parsed = Parsed::Refused(Reason::Malformed);

/// Every input of this file with its answer.
fn samples() -> Vec<(&'static str, Vec<u8>, Parsed)> {
    let plain = sample("api.tenant.example", |_| {});
    let message = plain[5..].to_vec();
    let tenant = asks_for("api.tenant.example");
    vec![
        ("rustls", plain.clone(), tenant.clone()),
        ("rustls with early data behind it", [&plain[..], &[23, 3, 3, 0, 2, 9, 9]].concat(), tenant.clone()),
        ("rustls without SNI", sample("api.tenant.example", |config| config.enable_sni = false), NAMELESS),
        ("rustls by address", sample("192.0.2.1", |_| {}), NAMELESS),
        ("rustls in several records", sample("api.tenant.example", |config| config.max_fragment_size = Some(64)), tenant.clone()),
        ("records of 7 bytes", in_records(&message, 7), tenant.clone()),
        ("records of 1 byte, too many", in_records(&message, 1), Parsed::Refused(Reason::TooLarge)),
        ("padded to 1.7 KB, as with ML-KEM", padded(1_700), tenant.clone()),
        ("padded to 5.5 KB", padded(5_500), tenant.clone()),
        ("padded to 20 KB, in two records", in_records(&padded(14_000)[5..], 9_000), tenant),
        ("address as a name", with_extensions(&server_name(b"192.0.2.1")), NAMELESS),
        ("HTTP", b"GET / HTTP/1.1\r\n".to_vec(), Parsed::Refused(Reason::PlainHttp)),
        ("HTTP/2 in the clear", b"PRI * HTTP/2.0\r\n".to_vec(), Parsed::Refused(Reason::PlainHttp)),
        ("SSH", b"SSH-2.0-x\r\n".to_vec(), Parsed::Refused(Reason::NotTls)),
        ("SSL 2.0", vec![0x80, 0x2e, 1, 0, 2], Parsed::Refused(Reason::SslV2)),
        ("name with NUL", with_extensions(&server_name(b"a\0.example")), Parsed::Refused(Reason::InvalidName)),
        ("two names", with_extensions(&[server_name(b"a.example"), server_name(b"b.example")].concat()), MALFORMED),
    ]
}

/// The first answer that comes when `bytes` arrive in portions that end at `ends`.
fn arriving(bytes: &[u8], ends: impl IntoIterator<Item = usize>) -> Parsed {
    ends.into_iter()
        .map(|end| parse(&bytes[..end]))
        .chain(std::iter::once_with(|| parse(bytes)))
        .find(|parsed| *parsed != Parsed::Incomplete)
        .unwrap_or(Parsed::Incomplete)
}

#[test]
fn samples_get_their_answers() {
    for (what, bytes, expected) in samples() {
        assert_eq!(parse(&bytes), expected, "{what}");
    }
}

#[test]
fn every_prefix_of_every_sample_waits_or_answers_as_the_whole() {
    for (what, bytes, expected) in samples() {
        let mut decided = false;
        for end in 0..=bytes.len() {
            let parsed = parse(&bytes[..end]);
            assert!(parsed == expected || (parsed == Parsed::Incomplete && !decided), "{what}, {end} bytes: {parsed:?}");
            decided |= parsed == expected;
        }
    }
}

#[test]
fn a_hello_in_two_segments_with_a_pause_is_whole() {
    let hello = padded(1_700);
    assert!(hello.len() > 1_448);
    assert_eq!(parse(&hello[..1_448]), Parsed::Incomplete);
    assert_eq!(arriving(&hello, [1_448]), asks_for("api.tenant.example"));
}

#[test]
fn three_segments_of_one_byte_and_the_rest_are_whole() {
    assert_eq!(arriving(&sample("api.tenant.example", |_| {}), [1, 2, 3]), asks_for("api.tenant.example"));
}

#[test]
fn a_name_length_beyond_the_hello_is_malformed() {
    let mut extension = server_name(b"a.example");
    extension[7..9].copy_from_slice(&[0xff, 0xff]);
    assert_eq!(parse(&with_extensions(&extension)), MALFORMED);
}

#[test]
fn any_record_version_of_major_3_is_taken() {
    let mut hello = sample("api.tenant.example", |_| {});
    for minor in [0, 1, 3, 4] {
        hello[2] = minor;
        assert_eq!(parse(&hello), asks_for("api.tenant.example"), "3.{minor}");
    }
    hello[1] = 2;
    assert_eq!(parse(&hello), MALFORMED);
}

#[test]
fn a_name_in_upper_case_or_with_a_final_dot_is_the_same_name() {
    for spelling in ["API.Tenant.Example", "api.tenant.example."] {
        assert_eq!(parse(&with_extensions(&server_name(spelling.as_bytes()))), asks_for("api.tenant.example"), "{spelling}");
    }
}

#[test]
fn unknown_extensions_and_kinds_of_name_are_skipped() {
    let grease = [0x0a, 0x0a, 0, 1, 0];
    let ech = [0xfe, 0x0d, 0, 3, 1, 2, 3];
    let name = server_name(b"a.example");
    assert_eq!(parse(&with_extensions(&[&grease[..], &ech, &name].concat())), asks_for("a.example"));
    assert_eq!(parse(&with_extensions(&[0, 0, 0, 6, 0, 4, 9, 0, 1, b'x'])), NAMELESS);
}

#[test]
fn a_hello_without_extensions_has_no_name() {
    let mut body = vec![3, 1];
    body.extend([7; 32]);
    body.extend([0, 0, 2, 0, 0x2f, 1, 0]);
    assert_eq!(parse(&in_one_record(&body)), NAMELESS);
}

#[test]
fn lengths_that_do_not_fit_are_malformed() {
    let good = with_extensions(&server_name(b"a.example"));
    let mut trailing_in_record = good.clone();
    trailing_in_record[4] += 1;
    trailing_in_record.push(0);
    let mut empty_record = vec![22, 3, 1, 0, 0];
    empty_record.extend(&good);
    let mut another_message = good.clone();
    another_message[5] = 2;
    let trailing_in_body = {
        let mut body = good[9..].to_vec();
        body.push(0);
        in_one_record(&body)
    };
    for (what, bytes) in [
        ("a byte behind the message", trailing_in_record),
        ("an empty record", empty_record),
        ("a ServerHello", another_message),
        ("a byte behind the extensions", trailing_in_body),
        ("an empty list of names", with_extensions(&[0, 0, 0, 2, 0, 0])),
        ("a byte behind the list of names", with_extensions(&[0, 0, 0, 7, 0, 4, 0, 0, 1, b'x', 0])),
        ("two host names in one list", with_extensions(&[0, 0, 0, 10, 0, 8, 0, 0, 1, b'x', 0, 0, 1, b'y'])),
        ("an extension beyond the end", with_extensions(&[0, 1, 0, 9, 0])),
        ("a record of over 16 KB", vec![22, 3, 1, 0x40, 1]),
    ] {
        assert_eq!(parse(&bytes), MALFORMED, "{what}");
    }
}

#[test]
fn a_hello_beyond_the_limit_is_refused_by_its_header() {
    assert_eq!(parse(&[22, 3, 1, 0x40, 0, 1, 0, 0x80, 0]), Parsed::Refused(Reason::TooLarge));
    assert_eq!(parse(&[22, 3, 1, 0x40, 0, 1, 0, 0x7f, 0xfc]), Parsed::Incomplete);
}

#[test]
fn the_committed_corpus_of_the_fuzz_target_gets_its_answers() {
    let seed = |name: &str| std::fs::read(format!("{}/fuzz/corpus/client_hello/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap();
    for (name, expected) in [
        ("openssl", asks_for("api.tenant.example")),
        ("openssl-tls12-alpn", asks_for("api.tenant.example")),
        ("records-of-40", asks_for("api.tenant.example")),
        ("openssl-no-name", NAMELESS),
        ("http", Parsed::Refused(Reason::PlainHttp)),
        ("ssl2", Parsed::Refused(Reason::SslV2)),
    ] {
        assert_eq!(parse(&seed(name)), expected, "{name}");
    }
}

proptest! {
    #[test]
    fn any_split_into_portions_gives_the_same_answer(which in 0..samples().len(), cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8)) {
        let (what, bytes, expected) = samples().swap_remove(which);
        let mut ends: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len())).collect();
        ends.sort_unstable();
        prop_assert_eq!(arriving(&bytes, ends), expected, "{}", what);
    }

    #[test]
    fn any_split_into_records_gives_the_same_answer(size in 5_usize..4_000) {
        let message = &sample("api.tenant.example", |_| {})[5..];
        prop_assert_eq!(parse(&in_records(message, size)), asks_for("api.tenant.example"));
    }

    #[test]
    fn no_input_panics_and_enough_of_it_is_always_answered(bytes in prop::collection::vec(any::<u8>(), 0..300), tls in any::<bool>()) {
        let bytes = if tls { [&[22, 3, 1, 0, 200, 1, 0, 0][..], &bytes].concat() } else { bytes };
        let parsed = parse(&bytes);
        let filled = [&bytes[..], &vec![0; MAX_INPUT]].concat();
        let whole = parse(&filled);
        prop_assert_ne!(&whole, &Parsed::Incomplete);
        prop_assert!(parsed == Parsed::Incomplete || parsed == whole);
    }

    #[test]
    fn a_flipped_byte_never_panics_and_keeps_prefixes_stable(which in 0..samples().len(), at in any::<prop::sample::Index>(), to in any::<u8>()) {
        let (_, mut bytes, _) = samples().swap_remove(which);
        let at = at.index(bytes.len());
        bytes[at] = to;
        let whole = parse(&bytes);
        for end in (0..bytes.len()).step_by(13) {
            let parsed = parse(&bytes[..end]);
            prop_assert!(parsed == Parsed::Incomplete || parsed == whole);
        }
    }
}
