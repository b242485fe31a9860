//! Reads CEL, as much of it as our rules use; everything else is an error.

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Expr {
    Int,
    Bool,
    /// With how many characters.
    Text(u64),
    Name(String),
    Field(Box<Self>, String),
    Has(Box<Self>),
    List(Vec<Self>),
    Index(Box<Self>, Box<Self>),
    Call {
        of: Option<Box<Self>>,
        name: String,
        args: Vec<Self>,
    },
    /// A macro that goes through a list: its name, its variable and what it does with each.
    Each {
        of: Box<Self>,
        name: String,
        var: String,
        body: Box<Self>,
    },
    Not(Box<Self>),
    Binary(String, Box<Self>, Box<Self>),
    Choice(Box<Self>, Box<Self>, Box<Self>),
}

const MACROS: [&str; 4] = ["all", "exists", "exists_one", "filter"];
/// From the loosest to the tightest.
const LEVELS: [&[&str]; 5] =
    [&["||"], &["&&"], &["==", "!=", "<=", ">=", "<", ">", "in"], &["+", "-"], &["*", "/", "%"]];

#[derive(Clone, Debug, PartialEq)]
enum Token {
    Int,
    Text(u64),
    Word(String),
    Sign(&'static str),
}

pub(crate) fn parse(rule: &str) -> Result<Expr, String> {
    let mut parser = Parser { tokens: tokens(rule)?, at: 0 };
    let expr = parser.choice()?;
    match parser.tokens.get(parser.at) {
        None => Ok(expr),
        Some(left) => Err(format!("cannot read on from {left:?}")),
    }
}

fn tokens(rule: &str) -> Result<Vec<Token>, String> {
    const SIGNS: [&str; 23] = [
        "||", "&&", "==", "!=", "<=", ">=", "<", ">", "+", "-", "*", "/", "%", "!", "?", ":", "(",
        ")", "[", "]", ",", ".", ";",
    ];
    let mut tokens = Vec::new();
    let mut rest = rule.trim_start();
    while let Some(first) = rest.chars().next() {
        let end = |within: fn(char) -> bool| rest.find(|c| !within(c)).unwrap_or(rest.len());
        let length = if first.is_ascii_digit() {
            tokens.push(Token::Int);
            end(|c| c.is_ascii_digit())
        } else if first.is_ascii_alphabetic() || first == '_' {
            let length = end(|c| c.is_ascii_alphanumeric() || c == '_');
            tokens.push(Token::Word(rest[..length].to_owned()));
            length
        } else if first == '\'' {
            let inner = rest[1..].find('\'').ok_or("a text has no end")?;
            if rest[1..=inner].contains('\\') {
                return Err("a text has an escape".to_owned());
            }
            tokens.push(Token::Text(rest[1..=inner].chars().count() as u64));
            inner + 2
        } else {
            let sign = SIGNS.iter().find(|sign| rest.starts_with(**sign));
            let sign = sign.ok_or_else(|| format!("{first:?} is not known"))?;
            tokens.push(Token::Sign(sign));
            sign.len()
        };
        rest = rest[length..].trim_start();
    }
    Ok(tokens)
}

struct Parser {
    tokens: Vec<Token>,
    at: usize,
}

impl Parser {
    fn takes(&mut self, sign: &str) -> bool {
        let there = match self.tokens.get(self.at) {
            Some(Token::Sign(found)) => *found == sign,
            Some(Token::Word(found)) => found == "in" && sign == "in",
            _ => false,
        };
        self.at += usize::from(there);
        there
    }

    fn needs(&mut self, sign: &str) -> Result<(), String> {
        if self.takes(sign) { Ok(()) } else { Err(format!("{sign:?} is missing")) }
    }

    fn choice(&mut self) -> Result<Expr, String> {
        let condition = self.binary(0)?;
        if !self.takes("?") {
            return Ok(condition);
        }
        let then = self.binary(0)?;
        self.needs(":")?;
        let otherwise = self.choice()?;
        Ok(Expr::Choice(condition.into(), then.into(), otherwise.into()))
    }

    fn binary(&mut self, level: usize) -> Result<Expr, String> {
        let Some(signs) = LEVELS.get(level) else { return self.unary() };
        let mut left = self.binary(level + 1)?;
        while let Some(sign) = signs.iter().find(|sign| self.takes(sign)) {
            let right = self.binary(level + 1)?;
            left = Expr::Binary((*sign).to_owned(), left.into(), right.into());
        }
        Ok(left)
    }

    fn unary(&mut self) -> Result<Expr, String> {
        if self.takes("!") {
            return Ok(Expr::Not(self.unary()?.into()));
        }
        let mut expr = self.primary()?;
        loop {
            if self.takes("[") {
                let index = self.choice()?;
                self.needs("]")?;
                expr = Expr::Index(expr.into(), index.into());
            } else if self.takes(".") {
                let name = self.word()?;
                expr = if self.takes("(") {
                    self.call(Some(expr), name)?
                } else {
                    Expr::Field(expr.into(), name)
                };
            } else {
                return Ok(expr);
            }
        }
    }

    fn word(&mut self) -> Result<String, String> {
        match self.tokens.get(self.at) {
            Some(Token::Word(word)) => {
                self.at += 1;
                Ok(word.clone())
            }
            other => Err(format!("a name is missing before {other:?}")),
        }
    }

    fn primary(&mut self) -> Result<Expr, String> {
        if self.takes("(") {
            let inner = self.choice()?;
            self.needs(")")?;
            return Ok(inner);
        }
        if self.takes("[") {
            return self.list("]").map(Expr::List);
        }
        let token = self.tokens.get(self.at).cloned().ok_or("it ends too early")?;
        self.at += 1;
        match token {
            Token::Int => Ok(Expr::Int),
            Token::Text(length) => Ok(Expr::Text(length)),
            Token::Word(word) if word == "true" || word == "false" => Ok(Expr::Bool),
            Token::Word(word) if self.takes("(") => self.call(None, word),
            Token::Word(word) => Ok(Expr::Name(word)),
            Token::Sign(sign) => Err(format!("{sign:?} is not expected")),
        }
    }

    fn list(&mut self, end: &str) -> Result<Vec<Expr>, String> {
        let mut all = Vec::new();
        while !self.takes(end) {
            if !all.is_empty() {
                self.needs(",")?;
            }
            all.push(self.choice()?);
        }
        Ok(all)
    }

    fn call(&mut self, of: Option<Expr>, name: String) -> Result<Expr, String> {
        let mut args = self.list(")")?;
        match (of, args.as_slice()) {
            (None, [Expr::Field(..)]) if name == "has" => Ok(Expr::Has(args.remove(0).into())),
            (Some(of), [Expr::Name(var), body]) if MACROS.contains(&name.as_str()) => {
                let (var, body) = (var.clone(), body.clone().into());
                Ok(Expr::Each { of: of.into(), name, var, body })
            }
            (of, _) => Ok(Expr::Call { of: of.map(Box::new), name, args }),
        }
    }
}
