//! Parameters: `$N`, as Postgres numbers them, becomes `?N`.
//!
//! SQLite takes `$N` for a *name* that is bound by its first appearance, so that `select $2, $1` would come out swapped.

/// The statement with every `$N` outside of strings, quoted names and comments written as `?N`.
pub(super) fn rewrite(sql: &str) -> String {
    let mut out = String::with_capacity(sql.len());
    let mut rest = sql;
    while let Some(at) = rest.find(['$', '\'', '"', '-', '/']) {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let taken = match rest.as_bytes() {
            [b'$', digit, ..] if digit.is_ascii_digit() => {
                out.push('?');
                rest = &rest[1..];
                continue;
            }
            // A doubled quote inside of a string ends one literal and begins the next, which comes to the same.
            [quote @ (b'\'' | b'"'), ..] => rest[1..].find(char::from(*quote)).map_or(rest.len(), |end| end + 2),
            [b'-', b'-', ..] => rest.find('\n').unwrap_or(rest.len()),
            [b'/', b'*', ..] => rest.find("*/").map_or(rest.len(), |end| end + 2),
            _ => 1,
        };
        out.push_str(&rest[..taken]);
        rest = &rest[taken..];
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::rewrite;

    #[test]
    fn numbers_parameters_and_leaves_the_rest() {
        for (sql, expected) in [
            ("select $2, $1", "select ?2, ?1"),
            ("select $10,$1", "select ?10,?1"),
            ("select '$1', $1", "select '$1', ?1"),
            ("select 'it''s $1', $1", "select 'it''s $1', ?1"),
            ("select \"$1\" from t where a=$1", "select \"$1\" from t where a=?1"),
            ("select 1 -- $1 is\n, $1", "select 1 -- $1 is\n, ?1"),
            ("select /* $1 */ $1 / 2 - 1", "select /* $1 */ ?1 / 2 - 1"),
            ("select 'ü$1' || $1 || 'é'", "select 'ü$1' || ?1 || 'é'"),
            ("select '$1", "select '$1"),
            ("select $a, $", "select $a, $"),
        ] {
            assert_eq!(rewrite(sql), expected);
        }
    }
}
