//! Regular expressions with RE2's meaning on the `regex` crate: linear time, bounded size.
//!
//! The two agree but for a few forms, which are translated: perl classes and word boundaries are
//! ASCII, `[` and set operations in a class are plain characters, `\<` is a plain `<`, a brace that
//! is no repetition is itself. What only the crate has (`(?x)`, `\u`) is refused.

use std::fmt::Write as _;
use std::iter::Peekable;
use std::str::CharIndices;

/// Searches bytes, because an ASCII `\B` may stand between the bytes of a character.
pub use regex::bytes::Regex;
use regex::bytes::RegexBuilder;

/// Of a compiled expression and of its lazily built automaton.
const LARGEST: usize = 1 << 20;
const DEEPEST: u32 = 100;

/// Why not, in a sentence, with the position.
pub fn compile(pattern: &str) -> Result<Regex, String> {
    let translated = translate(pattern)?;
    RegexBuilder::new(&translated)
        .size_limit(LARGEST)
        .dfa_size_limit(LARGEST)
        .nest_limit(DEEPEST)
        .build()
        .map_err(|error| match error {
            regex::Error::CompiledTooBig(_) => "the regular expression is too large".to_owned(),
            // The last line says why; the others draw the translated text.
            error => {
                let text = error.to_string();
                let why = text.lines().last().unwrap_or_default();
                format!("not a regular expression: {}", why.trim_start_matches("error: "))
            }
        })
}

const DIGIT: &str = "0-9";
const WORD: &str = "0-9A-Za-z_";
const SPACE: &str = r"\t\n\f\r\x20";

type Chars<'a> = Peekable<CharIndices<'a>>;

fn translate(pattern: &str) -> Result<String, String> {
    let mut out = String::with_capacity(pattern.len() + 16);
    let mut chars = pattern.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => match chars.next() {
                None => return Err(wrong(at, "ends in a backslash")),
                Some((_, 'Q')) => quoted(pattern, &mut chars, &mut out),
                Some((_, c @ ('b' | 'B'))) => push(&mut out, format_args!(r"(?-u:\{c})")),
                Some((_, c)) => match perl(c) {
                    Some((set, true)) => push(&mut out, format_args!("[^{set}]")),
                    Some((set, false)) => push(&mut out, format_args!("[{set}]")),
                    None => escape(at, c, "AzpPx", &mut chars, &mut out)?,
                },
            },
            '[' => class(pattern, at, &mut chars, &mut out)?,
            '{' => match repetition(&pattern[at..]) {
                Some(text) => {
                    out.push_str(text);
                    while chars.peek().is_some_and(|(i, _)| *i < at + text.len()) {
                        chars.next();
                    }
                }
                None => literal(c, &mut out),
            },
            ']' | '}' => literal(c, &mut out),
            '(' if pattern[at..].starts_with("(?") => {
                let rest = &pattern[at + 2..];
                let named = rest.starts_with("P<") || rest.starts_with('<');
                let end = rest.find([':', ')', '>']).unwrap_or(rest.len());
                if !named && let Some(flag) = rest[..end].chars().find(|c| !"imsU-".contains(*c)) {
                    return Err(wrong(
                        at,
                        &format!("has the group or flag (?{flag}, unknown here"),
                    ));
                }
                out.push(c);
            }
            c => out.push(c),
        }
    }
    Ok(out)
}

fn wrong(at: usize, what: &str) -> String {
    format!("not a regular expression: it {what}, at byte {at}")
}

fn push(out: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing to a String cannot fail.
    let _ = out.write_fmt(text);
}

fn literal(c: char, out: &mut String) {
    push(out, format_args!(r"\x{{{:X}}}", u32::from(c)));
}

/// The set of a perl class, and whether it is turned around.
fn perl(c: char) -> Option<(&'static str, bool)> {
    let set = match c.to_ascii_lowercase() {
        'd' => DIGIT,
        'w' => WORD,
        's' => SPACE,
        _ => return None,
    };
    Some((set, c.is_ascii_uppercase()))
}

/// `\Q…\E`, to the end if there is no `\E`.
fn quoted(pattern: &str, chars: &mut Chars<'_>, out: &mut String) {
    while let Some((at, c)) = chars.next() {
        if pattern[at..].starts_with(r"\E") {
            chars.next();
            return;
        }
        literal(c, out);
    }
}

/// After a backslash: punctuation stands for itself; of the letters, those that both know.
fn escape(
    at: usize,
    c: char,
    letters: &str,
    chars: &mut Chars<'_>,
    out: &mut String,
) -> Result<(), String> {
    if c.is_ascii_punctuation() {
        literal(c, out);
        return Ok(());
    }
    if !"afnrtv".contains(c) && !letters.contains(c) {
        return Err(wrong(at, &format!(r"has the escape \{c}, unknown here")));
    }
    push(out, format_args!(r"\{c}"));
    // The braces of `\p{Greek}` and `\x{10FFFF}` are no repetition, `\pL` and `\x41` no more than that.
    let bare = match c {
        'x' => 2,
        'p' | 'P' => 1,
        _ => return Ok(()),
    };
    if chars.peek().is_some_and(|(_, c)| *c == '{') {
        for (_, c) in chars.by_ref() {
            out.push(c);
            if c == '}' {
                break;
            }
        }
    } else {
        out.extend(chars.by_ref().take(bare).map(|(_, c)| c));
    }
    Ok(())
}

/// `{n}`, `{n,}` or `{n,m}` at the start of `text`.
fn repetition(text: &str) -> Option<&str> {
    let end = text.find('}')?;
    let inner = &text[1..end];
    let (least, most) = inner.split_once(',').unwrap_or((inner, ""));
    let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    (!least.is_empty() && digits(least) && digits(most)).then_some(&text[..=end])
}

/// A bracketed class, after its `[`.
fn class(
    pattern: &str,
    start: usize,
    chars: &mut Chars<'_>,
    out: &mut String,
) -> Result<(), String> {
    out.push('[');
    if chars.next_if(|(_, c)| *c == '^').is_some() {
        out.push('^');
    }
    let mut first = true;
    loop {
        let Some((at, c)) = chars.next() else {
            return Err(wrong(start, "has a [ that is not closed"));
        };
        if c == ']' && !first {
            out.push(']');
            return Ok(());
        }
        first = false;
        if c == '['
            && pattern[at..].starts_with("[:")
            && let Some(end) = pattern[at..].find(":]")
        {
            let name = &pattern[at..at + end + 2];
            out.push_str(name);
            while chars.peek().is_some_and(|(i, _)| *i < at + name.len()) {
                chars.next();
            }
            continue;
        }
        if c == '\\'
            && let Some((set, negative)) = chars.peek().and_then(|(_, c)| perl(*c))
        {
            chars.next();
            if negative {
                push(out, format_args!("[^{set}]"));
            } else {
                out.push_str(set);
            }
            continue;
        }
        single(at, c, chars, out)?;
        let mut ahead = chars.clone();
        let is_range = ahead.next().is_some_and(|(_, c)| c == '-')
            && ahead.next().is_some_and(|(_, c)| c != ']');
        if is_range {
            chars.next();
            out.push('-');
            if let Some((at, c)) = chars.next() {
                single(at, c, chars, out)?;
            }
        }
    }
}

/// One character of a class, or `\pL`.
fn single(at: usize, c: char, chars: &mut Chars<'_>, out: &mut String) -> Result<(), String> {
    if c != '\\' {
        literal(c, out);
        return Ok(());
    }
    match chars.next() {
        None => Err(wrong(at, "ends in a backslash")),
        Some((_, c)) => escape(at, c, "pPx", chars, out),
    }
}

#[cfg(test)]
mod tests;
