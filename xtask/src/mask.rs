//! Rust source with comments and the insides of literals blanked out, so that a search finds code
//! only.

/// `source` with every comment, string and character literal turned into spaces. Lines stay where
/// they are.
pub(crate) fn mask(source: &str) -> String {
    let bytes = source.as_bytes();
    let mut masked = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let length = opaque_length(bytes, at);
        if length == 0 {
            masked.push(bytes[at]);
            at += 1;
        } else {
            let end = (at + length).min(bytes.len());
            masked.extend(
                bytes[at..end]
                    .iter()
                    .map(|&byte| if byte == b'\n' { b'\n' } else { b' ' }),
            );
            at = end;
        }
    }
    String::from_utf8_lossy(&masked).into_owned()
}

/// How long the comment or literal is that begins at `at`; 0 when none does.
fn opaque_length(bytes: &[u8], at: usize) -> usize {
    let rest = &bytes[at..];
    let in_word = at > 0 && is_word(bytes[at - 1]);
    match rest {
        [b'/', b'/', ..] => rest
            .iter()
            .position(|&byte| byte == b'\n')
            .unwrap_or(rest.len()),
        [b'/', b'*', ..] => block_comment_length(rest),
        [b'"', ..] => 1 + quoted_length(&rest[1..], b'"'),
        [b'\'', ..] => character_length(rest),
        [b'b' | b'c', b'r', ..] if !in_word => prefixed(rest, 2, raw_length),
        [b'r', ..] if !in_word => prefixed(rest, 1, raw_length),
        _ => 0,
    }
}

/// The length of a literal behind a prefix of `prefix` bytes, prefix included.
fn prefixed(rest: &[u8], prefix: usize, length: fn(&[u8]) -> usize) -> usize {
    match length(&rest[prefix..]) {
        0 => 0,
        found => prefix + found,
    }
}

/// Block comments nest.
fn block_comment_length(rest: &[u8]) -> usize {
    let (mut depth, mut at) = (0_usize, 0);
    while at < rest.len() {
        match &rest[at..] {
            [b'/', b'*', ..] => (depth, at) = (depth + 1, at + 2),
            [b'*', b'/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            break;
        }
    }
    at
}

/// From behind the opening quote to behind the closing one.
fn quoted_length(rest: &[u8], quote: u8) -> usize {
    let mut at = 0;
    while at < rest.len() {
        match rest[at] {
            b'\\' => at += 2,
            byte if byte == quote => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

/// `'a'` and `'\n'` are characters, `'a` is a lifetime.
fn character_length(rest: &[u8]) -> usize {
    if rest.get(1) == Some(&b'\\') {
        return 1 + quoted_length(&rest[1..], b'\'');
    }
    // A character takes at most four bytes.
    let closing = rest.iter().skip(2).take(4).position(|&byte| byte == b'\'');
    match closing {
        Some(place)
            if std::str::from_utf8(&rest[1..place + 2])
                .is_ok_and(|inner| inner.chars().count() == 1) =>
        {
            place + 3
        }
        _ => 0,
    }
}

/// `#"..."#` with any number of hashes, the same on both sides.
fn raw_length(rest: &[u8]) -> usize {
    let hashes = rest.iter().take_while(|&&byte| byte == b'#').count();
    if rest.get(hashes) != Some(&b'"') {
        return 0;
    }
    let mut closing = vec![b'"'];
    closing.resize(hashes + 1, b'#');
    let body = &rest[hashes + 1..];
    let place = body
        .windows(closing.len())
        .position(|window| window == closing);
    place.map_or(rest.len(), |place| hashes + 1 + place + closing.len())
}

/// True for a byte that may stand in an identifier.
pub(crate) fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80
}

#[cfg(test)]
mod tests {
    use super::mask;

    #[test]
    fn only_code_is_left() {
        for (source, code) in [
            ("a // b\nc", "a     \nc"),
            ("a /* b /* c */ d */ e", "a                   e"),
            ("a \"b // c\" d", "a          d"),
            ("a \"\\\"b\" c", "a       c"),
            ("a 'b' c", "a     c"),
            ("a '\\'' b", "a      b"),
            ("a '\"' b \"c\"", "a     b    "),
            ("fn a<'b>(c: &'b str)", "fn a<'b>(c: &'b str)"),
            ("a r\"b\\\" c", "a       c"),
            ("a r#\"b\" c\"# d", "a           d"),
            ("a br##\"b\"# c\"## d", "a               d"),
            ("var\"b\" c", "var    c"),
            ("r#type", "r#type"),
            ("a \"b\nc\" d", "a   \n   d"),
        ] {
            assert_eq!(mask(source), code, "{source}");
        }
    }

    #[test]
    fn what_is_never_closed_ends_with_the_file() {
        for source in ["\"a", "/* a", "r#\"a", "'\\", "\"\\", "'", "r#", "'\u{e9}"] {
            assert_eq!(mask(source).lines().count(), 1, "{source}");
        }
    }

    #[test]
    fn a_wide_character_is_a_character() {
        assert_eq!(mask("a '\u{20ac}' b").trim_end_matches('b').trim(), "a");
    }
}
