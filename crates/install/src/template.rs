//! A strict subset of Go's `text/template` with the functions of Helm that the chart uses.
//!
//! ```text
//! file ──► lex (text, actions, trim markers) ──► parse (a tree) ──► eval (text)
//! ```
//!
//! In the subset: comments, fields, variables, pipelines, parentheses, `if`/`else if`/`else`, `with`,
//! `range` over lists and maps, `define`, `template`, `include`, strings, whole numbers, booleans, and
//! [`functions::NAMES`]. Everything else is an error with its line. So is everything with a surprising
//! result in Helm: an absent value that is printed, a large number, a text compared with a number.

mod eval;
mod functions;
mod lex;
mod parse;
mod value;

#[cfg(test)]
mod tests;

pub(crate) use eval::{Root, Templates};
pub(crate) use value::Value;
