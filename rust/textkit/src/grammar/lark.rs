//! Schemas inside Lark (`%json {…}`): rewritten like a schema that stands alone, with the same options.

use serde_json::Value;

use super::compile::Limits;
use super::{json, Error, Res};

const MARK: &str = "%json";

/// The grammar with every schema as `prepare` gives it. Texts, patterns and comments of the grammar stay as they are.
pub fn prepare_schemas(text: &str, limits: &Limits, prepare: &mut dyn FnMut(&Value, &str) -> Res<Value>) -> Res<String> {
    let mut out = String::with_capacity(text.len());
    let (mut at, mut copied) = (0, 0);
    while at < text.len() {
        let rest = &text.as_bytes()[at..];
        at += match rest[0] {
            b'"' => quoted(rest, b'"'),
            b'/' if rest.starts_with(b"//") => line(rest),
            b'/' => quoted(rest, b'/'),
            b'#' => line(rest),
            b'%' if rest.starts_with(MARK.as_bytes()) => {
                let from = at + MARK.len();
                let begin = from + text[from..].bytes().take_while(u8::is_ascii_whitespace).count();
                if text.as_bytes().get(begin) != Some(&b'{') {
                    return Err(Error::Invalid("%json is followed by no object".into()));
                }
                let end = begin + object(&text.as_bytes()[begin..]);
                let schema = json::read(&text[begin..end], limits.depth)?;
                out.push_str(&text[copied..from]);
                out.push_str(&format!(" {}", prepare(&schema, "")?));
                copied = end;
                end - at
            }
            _ => 1,
        };
    }
    out.push_str(&text[copied..]);
    Ok(out)
}

/// The length of a text or pattern with its end mark.
fn quoted(bytes: &[u8], end: u8) -> usize {
    let mut at = 1;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 1,
            c if c == end => return at + 1,
            _ => (),
        }
        at += 1;
    }
    bytes.len()
}

fn line(bytes: &[u8]) -> usize {
    bytes.iter().position(|&c| c == b'\n').unwrap_or(bytes.len())
}

/// The length of a JSON object, whose parser says what is wrong inside.
fn object(bytes: &[u8]) -> usize {
    let (mut at, mut open) = (0, 0usize);
    while at < bytes.len() {
        match bytes[at] {
            b'"' => at += quoted(&bytes[at..], b'"') - 1,
            b'{' | b'[' => open += 1,
            b'}' | b']' => open = open.saturating_sub(1),
            _ => (),
        }
        at += 1;
        if open == 0 {
            break;
        }
    }
    at.min(bytes.len())
}
