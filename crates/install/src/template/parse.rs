//! Parses tokens into a tree.

use std::collections::VecDeque;

use super::functions;
use super::lex::{Piece, Token, pieces};
use super::value::Value;

/// Nested blocks and parentheses deeper than this are refused.
const DEEPEST: usize = 64;

#[derive(Debug)]
pub(super) enum Node {
    Text(String),
    Print(Located),
    /// `$name := …`
    Declare(String, Located),
    /// Conditions with their bodies, and the body if none is true.
    If(Vec<(Located, Vec<Node>)>, Vec<Node>),
    With(Located, Vec<Node>, Vec<Node>),
    Range {
        names: Vec<String>,
        over: Located,
        body: Vec<Node>,
        otherwise: Vec<Node>,
    },
    Template {
        name: String,
        line: usize,
        data: Option<Located>,
    },
}

#[derive(Debug)]
pub(super) struct Located {
    pub(super) line: usize,
    pub(super) expr: Expr,
}

#[derive(Debug)]
pub(super) enum Expr {
    Literal(Value),
    /// A path from the dot, or from a variable.
    Path(Option<String>, Vec<String>),
    Call(String, Vec<Expr>),
    /// A built-in object's function, such as `.Files.Get "x"`.
    Method(Option<String>, Vec<String>, Vec<Expr>),
    /// The value of each is the last argument of the next.
    Pipe(Vec<Expr>),
}

/// A parsed file: its own body, and its definitions.
#[derive(Debug)]
pub(super) struct Parsed {
    pub(super) body: Vec<Node>,
    pub(super) defines: Vec<(String, Vec<Node>)>,
}

type Failure = (usize, String);

pub(super) fn parse(source: &str) -> Result<Parsed, Failure> {
    let mut parser = Parser { pieces: pieces(source)?.into(), defines: Vec::new(), depth: 0 };
    let (body, end) = parser.body()?;
    if let Stop::Else(line, _) | Stop::End(line) = end {
        return Err((line, "this ends no block".to_owned()));
    }
    Ok(Parsed { body, defines: parser.defines })
}

struct Parser {
    pieces: VecDeque<Piece>,
    defines: Vec<(String, Vec<Node>)>,
    depth: usize,
}

/// The keyword that ends a body.
enum Stop {
    File,
    End(usize),
    /// With the tokens after `else`.
    Else(usize, Vec<Token>),
}

impl Parser {
    fn body(&mut self) -> Result<(Vec<Node>, Stop), Failure> {
        let mut nodes = Vec::new();
        while let Some(piece) = self.pieces.pop_front() {
            match piece {
                Piece::Text(text) => nodes.push(Node::Text(text)),
                Piece::Action { line, tokens } => {
                    let (first, rest) = match tokens.split_first() {
                        Some((Token::Word(word), rest)) => (word.as_str(), rest.to_vec()),
                        Some(_) => ("", tokens),
                        None => return Err((line, "an action is empty".to_owned())),
                    };
                    match first {
                        "end" if rest.is_empty() => return Ok((nodes, Stop::End(line))),
                        "else" => return Ok((nodes, Stop::Else(line, rest))),
                        _ => nodes.extend(self.action(line, first, rest)?),
                    }
                }
            }
        }
        Ok((nodes, Stop::File))
    }

    fn action(
        &mut self,
        line: usize,
        word: &str,
        tokens: Vec<Token>,
    ) -> Result<Option<Node>, Failure> {
        let fail = |message: &str| (line, message.to_owned());
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(fail("blocks are nested too deeply"));
        }
        let node = match word {
            "if" => Some(self.conditional(line, tokens)?),
            "with" => {
                let subject = whole(line, tokens)?;
                let (body, otherwise) = self.block(line)?;
                Some(Node::With(subject, body, otherwise))
            }
            "range" => {
                let (names, over) = declared(line, tokens)?;
                let (body, otherwise) = self.block(line)?;
                Some(Node::Range { names, over, body, otherwise })
            }
            "define" => {
                let [Token::Text(name)] = tokens.as_slice() else {
                    return Err(fail("expected the name of a template after define"));
                };
                if self.depth > 1 {
                    return Err(fail("a define inside a block"));
                }
                let (body, Stop::End(_)) = self.body()? else {
                    return Err(fail("this define has no end"));
                };
                self.defines.push((name.clone(), body));
                None
            }
            "template" => {
                let Some((Token::Text(name), rest)) = tokens.split_first() else {
                    return Err(fail("expected the name of a template"));
                };
                let data = (!rest.is_empty()).then(|| whole(line, rest.to_vec())).transpose()?;
                Some(Node::Template { name: name.clone(), line, data })
            }
            "end" | "block" | "break" | "continue" => {
                return Err((line, format!("`{word}` so is outside the subset")));
            }
            _ => {
                let mut tokens = tokens;
                if !word.is_empty() {
                    tokens.insert(0, Token::Word(word.to_owned()));
                }
                let (mut names, value) = declared(line, tokens)?;
                Some(match (names.pop(), names.is_empty()) {
                    (None, _) => Node::Print(value),
                    (Some(name), true) => Node::Declare(name, value),
                    _ => return Err(fail("two variables are for range alone")),
                })
            }
        };
        self.depth -= 1;
        Ok(node)
    }

    fn conditional(&mut self, line: usize, tokens: Vec<Token>) -> Result<Node, Failure> {
        let mut condition = whole(line, tokens)?;
        let mut branches = Vec::new();
        loop {
            let (body, end) = self.body()?;
            branches.push((condition, body));
            match end {
                Stop::End(_) => return Ok(Node::If(branches, Vec::new())),
                Stop::Else(at, rest) if rest.is_empty() => {
                    let (otherwise, Stop::End(_)) = self.body()? else {
                        return Err((at, "this else has no end".to_owned()));
                    };
                    return Ok(Node::If(branches, otherwise));
                }
                Stop::Else(at, rest) => match rest.split_first() {
                    Some((Token::Word(word), rest)) if word == "if" => {
                        condition = whole(at, rest.to_vec())?;
                    }
                    _ => return Err((at, "expected `else` or `else if`".to_owned())),
                },
                Stop::File => return Err((line, "this if has no end".to_owned())),
            }
        }
    }

    /// Parses a body and the one after `else`.
    fn block(&mut self, line: usize) -> Result<(Vec<Node>, Vec<Node>), Failure> {
        let (body, end) = self.body()?;
        match end {
            Stop::End(_) => Ok((body, Vec::new())),
            Stop::Else(at, rest) if rest.is_empty() => match self.body()? {
                (otherwise, Stop::End(_)) => Ok((body, otherwise)),
                _ => Err((at, "this else has no end".to_owned())),
            },
            Stop::Else(at, _) => {
                Err((at, "`else` with more is outside the subset here".to_owned()))
            }
            Stop::File => Err((line, "this block has no end".to_owned())),
        }
    }
}

/// Parses a pipeline that may begin with `$a :=` or `$a, $b :=`.
fn declared(line: usize, mut tokens: Vec<Token>) -> Result<(Vec<String>, Located), Failure> {
    let Some(at) = tokens.iter().position(|token| *token == Token::Declare) else {
        return Ok((Vec::new(), whole(line, tokens)?));
    };
    let value = tokens.split_off(at + 1);
    let name = |token: &Token| match token {
        Token::Variable(name, path) if !name.is_empty() && path.is_empty() => Some(name.clone()),
        _ => None,
    };
    let names = match tokens.as_slice() {
        [a, Token::Declare] => name(a).map(|a| vec![a]),
        [a, Token::Comma, b, Token::Declare] => name(a).zip(name(b)).map(|(a, b)| vec![a, b]),
        _ => None,
    };
    let names = names.ok_or_else(|| (line, "expected $name before :=".to_owned()))?;
    Ok((names, whole(line, value)?))
}

/// Parses all of `tokens` as a pipeline.
fn whole(line: usize, tokens: Vec<Token>) -> Result<Located, Failure> {
    let mut tokens = VecDeque::from(tokens);
    let expr = pipeline(&mut tokens, 0).map_err(|message| (line, message))?;
    match tokens.front() {
        None => Ok(Located { line, expr }),
        Some(token) => Err((line, format!("{token:?} is not expected here"))),
    }
}

fn pipeline(tokens: &mut VecDeque<Token>, depth: usize) -> Result<Expr, String> {
    if depth > DEEPEST {
        return Err("parentheses are nested too deeply".to_owned());
    }
    let mut commands = vec![command(tokens, depth)?];
    while tokens.front() == Some(&Token::Pipe) {
        tokens.pop_front();
        let next = command(tokens, depth)?;
        if !matches!(next, Expr::Call(..) | Expr::Method(..)) {
            return Err("expected a function after |".to_owned());
        }
        commands.push(next);
    }
    if commands.len() > 1 {
        return Ok(Expr::Pipe(commands));
    }
    commands.pop().ok_or_else(|| "an empty pipeline".to_owned())
}

fn command(tokens: &mut VecDeque<Token>, depth: usize) -> Result<Expr, String> {
    let first = match tokens.front() {
        Some(Token::Word(_)) => match tokens.pop_front() {
            Some(Token::Word(word)) => word,
            _ => String::new(),
        },
        _ => {
            let head = operand(tokens, depth)?.ok_or("a value is missing")?;
            let mut args = Vec::new();
            while let Some(arg) = operand(tokens, depth)? {
                args.push(arg);
            }
            return match head {
                head if args.is_empty() => Ok(head),
                Expr::Path(root, path) => Ok(Expr::Method(root, path, args)),
                _ => Err("only functions take arguments".to_owned()),
            };
        }
    };
    match first.as_str() {
        "true" | "false" => return Ok(Expr::Literal(Value::Bool(first == "true"))),
        "nil" => return Err("`nil` is outside the subset".to_owned()),
        name if !functions::NAMES.contains(&name) => {
            return Err(format!("the function `{name}` is outside the subset"));
        }
        _ => {}
    }
    let mut args = Vec::new();
    while let Some(arg) = operand(tokens, depth)? {
        args.push(arg);
    }
    Ok(Expr::Call(first, args))
}

/// Parses the next operand; `None` at the end of the command.
fn operand(tokens: &mut VecDeque<Token>, depth: usize) -> Result<Option<Expr>, String> {
    match tokens.front() {
        None | Some(Token::Pipe | Token::Close) => return Ok(None),
        _ => {}
    }
    Ok(Some(match tokens.pop_front() {
        Some(Token::Text(text)) => Expr::Literal(Value::text(text)),
        Some(Token::Int(number)) => Expr::Literal(Value::Int(number)),
        Some(Token::Field(path)) => Expr::Path(None, path),
        Some(Token::Variable(name, path)) => Expr::Path(Some(name), path),
        Some(Token::Word(word)) if word == "true" || word == "false" => {
            Expr::Literal(Value::Bool(word == "true"))
        }
        Some(Token::Open) => {
            let inner = pipeline(tokens, depth + 1)?;
            if tokens.pop_front() != Some(Token::Close) {
                return Err("a parenthesis is not closed".to_owned());
            }
            inner
        }
        other => return Err(format!("{other:?} is not expected here")),
    }))
}
