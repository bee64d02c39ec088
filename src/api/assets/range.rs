//! Parts of a file (RFC 9110, section 14): one range of bytes. Pure.

/// Which part of a file is to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// All of it.
    Whole,
    /// From the first byte to the last, both counted from 0 and included.
    Bytes(u64, u64),
    /// None of it is where the range is.
    Nowhere,
}

/// The part that a `Range` header asks for of a file of `size` bytes. What is no single range of bytes counts as absent, as the RFC
/// lets a server decide.
pub fn part(header: Option<&str>, size: u64) -> Part {
    let Some((first, last)) = header.and_then(|text| text.trim().strip_prefix("bytes=")).and_then(|range| range.split_once('-')) else {
        return Part::Whole;
    };
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    match (first.trim(), last.trim()) {
        // The last so many bytes.
        ("", count) if digits(count) => match count.parse::<u64>().unwrap_or(u64::MAX).min(size) {
            0 => Part::Nowhere,
            count => Part::Bytes(size - count, size - 1),
        },
        (first, last) if digits(first) && (last.is_empty() || digits(last)) => {
            let first = first.parse::<u64>().unwrap_or(u64::MAX);
            let last = if last.is_empty() { u64::MAX } else { last.parse().unwrap_or(u64::MAX) };
            match (first, last) {
                (first, last) if last < first => Part::Whole,
                (first, _) if first >= size => Part::Nowhere,
                (first, last) => Part::Bytes(first, last.min(size - 1)),
            }
        }
        _ => Part::Whole,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_as_the_rfc_has_them() {
        for (header, expected) in [
            (None, Part::Whole),
            (Some("bytes=0-"), Part::Bytes(0, 99)),
            (Some("bytes=10-19"), Part::Bytes(10, 19)),
            (Some("bytes=10-1000"), Part::Bytes(10, 99)),
            (Some("bytes=99-"), Part::Bytes(99, 99)),
            (Some("bytes=100-"), Part::Nowhere),
            (Some("bytes=-1"), Part::Bytes(99, 99)),
            (Some("bytes=-1000"), Part::Bytes(0, 99)),
            (Some("bytes=-0"), Part::Nowhere),
            (Some("bytes=99999999999999999999999-"), Part::Nowhere),
            (Some("bytes=5-4"), Part::Whole),
            (Some("bytes=0-1,3-4"), Part::Whole),
            (Some("bytes=a-"), Part::Whole),
            (Some("bytes=-"), Part::Whole),
            (Some("bytes=+1-"), Part::Whole),
            (Some("items=0-1"), Part::Whole),
            (Some(""), Part::Whole),
        ] {
            assert_eq!(part(header, 100), expected, "{header:?}");
        }
        assert_eq!(part(Some("bytes=0-"), 0), Part::Nowhere);
        assert_eq!(part(Some("bytes=-5"), 0), Part::Nowhere);
    }

    proptest::proptest! {
        #[test]
        fn a_part_lies_within_the_file(text in "bytes=[0-9,-]{0,24}", size in 0_u64..1000) {
            if let Part::Bytes(first, last) = part(Some(&text), size) {
                proptest::prop_assert!(first <= last && last < size);
            }
        }
    }
}
