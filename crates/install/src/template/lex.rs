//! Splits a template into text and actions, and an action into tokens.

/// A piece of a template file, with the line it begins on.
#[derive(Debug)]
pub(super) enum Piece {
    Text(String),
    Action { line: usize, tokens: Vec<Token> },
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token {
    /// A function or a keyword.
    Word(String),
    /// `.a.b`; `.` alone is empty.
    Field(Vec<String>),
    /// `$x.a.b`; `$` alone has an empty name.
    Variable(String, Vec<String>),
    Text(String),
    Int(i64),
    Open,
    Close,
    Pipe,
    Comma,
    Declare,
}

const SPACE: [char; 4] = [' ', '\t', '\r', '\n'];

/// Splits a file into pieces, with white space trimmed as `-` says.
pub(super) fn pieces(source: &str) -> Result<Vec<Piece>, (usize, String)> {
    let mut pieces = Vec::new();
    let (mut rest, mut line, mut trim_next) = (source, 1, false);
    while let Some(at) = rest.find("{{") {
        let (text, after) = rest.split_at(at);
        let lines_before = text.matches('\n').count();
        let mut body = &after[2..];
        let mut text = if trim_next { text.trim_start_matches(SPACE) } else { text };
        if body.starts_with('-') && body[1..].starts_with(SPACE) {
            text = text.trim_end_matches(SPACE);
            body = &body[1..];
        }
        if !text.is_empty() {
            pieces.push(Piece::Text(text.to_owned()));
        }
        line += lines_before;
        let action = action(body).map_err(|message| (line, message))?;
        if let Some(tokens) = action.tokens {
            pieces.push(Piece::Action { line, tokens });
        }
        line += body[..action.length].matches('\n').count();
        trim_next = action.trims;
        rest = &body[action.length..];
    }
    let text = if trim_next { rest.trim_start_matches(SPACE) } else { rest };
    if !text.is_empty() {
        pieces.push(Piece::Text(text.to_owned()));
    }
    Ok(pieces)
}

struct Action {
    /// None for a comment.
    tokens: Option<Vec<Token>>,
    /// With the closing braces.
    length: usize,
    trims: bool,
}

/// The end of an action: `}}`, or `-}}` after a space.
fn end(rest: &str, after_space: bool) -> Option<(usize, bool)> {
    if rest.starts_with("}}") {
        return Some((2, false));
    }
    (after_space && rest.starts_with("-}}")).then_some((3, true))
}

fn action(body: &str) -> Result<Action, String> {
    let start = body.len() - body.trim_start_matches(SPACE).len();
    if body[start..].starts_with("/*") {
        let close = body.find("*/").ok_or("a comment has no end")? + 2;
        let rest = &body[close..];
        let space = rest.len() - rest.trim_start_matches(SPACE).len();
        let (length, trims) =
            end(&rest[space..], space > 0).ok_or("a comment must be all of its action")?;
        return Ok(Action { tokens: None, length: close + space + length, trims });
    }
    let mut tokens = Vec::new();
    let mut at = start;
    loop {
        let rest = &body[at..];
        let after_space = body[..at].ends_with(SPACE);
        if let Some((length, trims)) = end(rest, after_space) {
            return Ok(Action { tokens: Some(tokens), length: at + length, trims });
        }
        let Some(first) = rest.chars().next() else {
            return Err("an action has no end".to_owned());
        };
        if SPACE.contains(&first) {
            at += 1;
            continue;
        }
        let (token, length) = token(rest, first)?;
        at += length;
        // Go requires a space, a delimiter or the end after an operand: `.a"b"` is a mistake.
        let operand = !matches!(
            token,
            Token::Open | Token::Pipe | Token::Comma | Token::Declare | Token::Close
        );
        let next = body[at..].chars().next();
        let separated = next.is_none_or(|c| SPACE.contains(&c) || "|)},:".contains(c));
        if operand && !separated {
            return Err(format!("expected a space after {token:?}"));
        }
        if token == Token::Close && next == Some('.') {
            return Err("a field of something in parentheses is outside the subset".to_owned());
        }
        tokens.push(token);
    }
}

fn token(rest: &str, first: char) -> Result<(Token, usize), String> {
    let word =
        |text: &str| text.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').count();
    Ok(match first {
        '(' => (Token::Open, 1),
        ')' => (Token::Close, 1),
        '|' => (Token::Pipe, 1),
        ',' => (Token::Comma, 1),
        ':' if rest.starts_with(":=") => (Token::Declare, 2),
        '"' => quoted(rest)?,
        '`' => {
            let end = rest[1..].find('`').ok_or("a raw string has no end")?;
            (Token::Text(rest[1..=end].to_owned()), end + 2)
        }
        '.' => {
            let (path, length) = path(rest);
            if path.is_empty() && length != 1 {
                return Err("a field has no name".to_owned());
            }
            (Token::Field(path), length)
        }
        '$' => {
            let name = word(&rest[1..]);
            let (path, length) = path(&rest[1 + name..]);
            (Token::Variable(rest[1..=name].to_owned(), path), 1 + name + length)
        }
        c if c.is_ascii_digit() || c == '-' => {
            let digits = rest[1..].chars().take_while(char::is_ascii_digit).count();
            let number = &rest[..=digits];
            // Go reads 010 as eight.
            if number.len() > 1 && number.trim_start_matches('-').starts_with('0') {
                return Err(format!("`{number}` is outside the subset"));
            }
            let wrong = |_| format!("`{number}` is no whole number; others are outside the subset");
            (Token::Int(number.parse().map_err(wrong)?), digits + 1)
        }
        c if c.is_ascii_alphabetic() => {
            let length = word(rest);
            (Token::Word(rest[..length].to_owned()), length)
        }
        c => return Err(format!("`{c}` is outside the subset")),
    })
}

/// Reads a path such as `.a.b`, and returns it with its length; `.` alone is an empty path of length 1.
fn path(rest: &str) -> (Vec<String>, usize) {
    let (mut path, mut at) = (Vec::new(), 0);
    while rest[at..].starts_with('.') {
        let name: String =
            rest[at + 1..].chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
        if name.is_empty() {
            return (path, at + usize::from(at == 0));
        }
        at += 1 + name.len();
        path.push(name);
    }
    (path, at)
}

fn quoted(rest: &str) -> Result<(Token, usize), String> {
    let mut text = String::new();
    let mut chars = rest.char_indices().skip(1);
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Ok((Token::Text(text), at + 1)),
            '\n' => break,
            '\\' => match chars.next() {
                Some((_, 'n')) => text.push('\n'),
                Some((_, 't')) => text.push('\t'),
                Some((_, c @ ('"' | '\\'))) => text.push(c),
                other => {
                    let c = other.map(|(_, c)| c).unwrap_or_default();
                    return Err(format!("`\\{c}` in a string is outside the subset"));
                }
            },
            c => text.push(c),
        }
    }
    Err("a string has no end".to_owned())
}
