//! JSON Schema, checked and rewritten before llguidance sees it.
//!
//! A schema becomes a union of alternatives per type (`node.rs`), in which `allOf`, `$ref` with siblings, `oneOf`, `not`,
//! `if` and the `dependen…` keywords are worked out (`parse.rs`, `negate.rs`). What comes out again (`emit.rs`) uses only
//! keywords that llguidance enforces exactly; whatever has no such form is an error that names keyword and place.

mod emit;
mod keywords;
mod negate;
mod node;
mod object;
mod parse;
pub mod pattern;
mod refs;
mod strings;

use serde_json::Value;

use super::compile::{Limits, Options};
use super::{Error, Res};

/// Parses JSON text of bounded depth.
pub fn read(text: &str, depth: usize) -> Res<Value> {
    let mut level = 0usize;
    let mut quoted = false;
    let mut escaped = false;
    for b in text.bytes() {
        match b {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b'[' | b'{' if !quoted => level += 1,
            b']' | b'}' if !quoted => level = level.saturating_sub(1),
            _ => {}
        }
        if level > depth.min(120) {
            return Err(Error::TooLarge(format!("the grammar is nested deeper than {} levels", depth.min(120))));
        }
    }
    serde_json::from_str(text).map_err(|e| Error::Invalid(format!("the text is not valid JSON: {e}")))
}

/// The schema in the form that llguidance enforces. `at`: where it stands, for messages.
pub fn prepare(schema: &Value, at: &str, options: Options, limits: &Limits, warnings: &mut Vec<String>) -> Res<Value> {
    let mut context = parse::Context::new(schema, at, options, limits);
    let root = context.root()?;
    let out = emit::emit(&mut context, &root)?;
    warnings.append(&mut context.warnings);
    Ok(out)
}

/// `keyword` cannot be enforced where it stands.
fn unsupported(at: &str, keyword: &str, why: &str) -> Error {
    Error::Unsupported(format!("{}: \"{keyword}\" cannot be enforced: {why}", place(at)))
}

fn invalid(at: &str, keyword: &str, why: &str) -> Error {
    Error::Invalid(format!("{}: \"{keyword}\" {why}", place(at)))
}

fn place(at: &str) -> String {
    if at.is_empty() {
        return "the schema at its root".into();
    }
    let short: String = at.chars().take(300).collect();
    format!("the schema at {short}")
}

/// The pointer of a member.
fn join(at: &str, key: &str) -> String {
    format!("{at}/{}", key.replace('~', "~0").replace('/', "~1"))
}
