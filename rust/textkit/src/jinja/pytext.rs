//! Values as text: Python's str(), repr() and json.dumps.

use std::fmt::Write;
use std::ops::Deref;
use std::rc::Rc;

use super::eval::Eval;
use super::value::*;

/// Text that may be shared with a value.
pub enum Shown {
    Shared(Rc<Text>),
    Owned(String),
}

impl Deref for Shown {
    type Target = str;
    fn deref(&self) -> &str {
        match self {
            Shown::Shared(t) => &t.s,
            Shown::Owned(s) => s,
        }
    }
}

/// str(v)
pub fn str_of(e: &mut Eval, v: &V) -> Res<Shown> {
    Ok(match v {
        V::Str(t) => Shown::Shared(t.clone()),
        V::Undefined(_) => Shown::Owned(String::new()),
        _ => {
            let mut out = String::new();
            repr(e, v, &mut out)?;
            Shown::Owned(out)
        }
    })
}

/// str.isspace: Unicode white space and the four separators 0x1c to 0x1f.
pub fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c)
}

pub fn strip<'a>(s: &'a str, chars: Option<&str>, left: bool, right: bool) -> &'a str {
    let hit = |c: char| chars.map_or_else(|| is_space(c), |set| set.contains(c));
    let s = if left { s.trim_start_matches(hit) } else { s };
    if right {
        s.trim_end_matches(hit)
    } else {
        s
    }
}

/// Only what goes is looked at, by each of the characters that go.
pub fn stripped(e: &mut Eval, s: &str, set: Option<&str>, left: bool, right: bool) -> Res<V> {
    if let Some(set) = set {
        e.step((s.len() as u64 / 16 + 1).saturating_mul(set.len() as u64 / 8 + 1))?;
    }
    let kept = strip(s, set, left, right);
    e.scan_step(s.len() - kept.len())?;
    e.text(kept)
}

/// Jinja's title: words begin behind a hyphen, white space or an opening bracket.
pub fn title_words(s: &str) -> String {
    let mut out = String::with_capacity(s.len());
    let mut inside = false;
    for c in s.chars() {
        if inside {
            out.extend(c.to_lowercase());
        } else {
            out.extend(c.to_uppercase());
        }
        inside = !(is_space(c) || "-({[<".contains(c));
    }
    out
}

pub fn title(s: &str) -> String {
    let mut out = String::with_capacity(s.len());
    let mut inside = false;
    for c in s.chars() {
        if inside {
            out.extend(c.to_lowercase());
        } else {
            out.extend(c.to_uppercase());
        }
        inside = c.is_alphabetic();
    }
    out
}

pub fn capitalize(s: &str) -> String {
    let mut chars = s.chars();
    let mut out = String::with_capacity(s.len());
    if let Some(c) = chars.next() {
        out.extend(c.to_uppercase());
        out.push_str(&chars.as_str().to_lowercase());
    }
    out
}

/// str.splitlines: also at the separators that are no line feed.
pub fn lines(s: &str, keep_ends: bool) -> Vec<&str> {
    let mut out = Vec::new();
    let mut rest = s;
    let ends = |c: char| matches!(c, '\n'..='\r' | '\u{1c}'..='\u{1e}' | '\u{85}' | '\u{2028}' | '\u{2029}');
    while let Some(at) = rest.find(ends) {
        let end = rest[at..].chars().next().map_or(1, char::len_utf8);
        let end = at + if rest[at..].starts_with("\r\n") { 2 } else { end };
        out.push(&rest[..if keep_ends { end } else { at }]);
        rest = &rest[end..];
    }
    if !rest.is_empty() {
        out.push(rest);
    }
    out
}

/// float.__repr__
pub fn float_repr(f: f64) -> String {
    if f.is_nan() {
        return "nan".into();
    }
    if f.is_infinite() {
        return if f > 0.0 { "inf".into() } else { "-inf".into() };
    }
    if f == 0.0 {
        return if f.is_sign_negative() { "-0.0".into() } else { "0.0".into() };
    }
    let sci = format!("{f:e}"); // shortest digits that read back equal: d.ddde±x
    let (mantissa, exponent) = sci.split_once('e').unwrap();
    let exponent: i32 = exponent.parse().unwrap();
    if (-4..16).contains(&exponent) {
        let plain = format!("{f}");
        return if plain.contains('.') { plain } else { plain + ".0" };
    }
    format!("{mantissa}e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.abs())
}

fn str_repr(s: &str, out: &mut String) {
    let quote = if s.contains('\'') && !s.contains('"') { '"' } else { '\'' };
    out.push(quote);
    for c in s.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c == quote => {
                out.push('\\');
                out.push(c);
            }
            c if (c as u32) < 0x20 || (0x7f..0xa1).contains(&(c as u32)) || c as u32 == 0xad => {
                let _ = write!(out, "\\x{:02x}", c as u32);
            }
            c => out.push(c),
        }
    }
    out.push(quote);
}

/// repr(v); every element costs a step, and the text is held under the memory limit while it grows.
pub fn repr(e: &mut Eval, v: &V, out: &mut String) -> Res<()> {
    e.step(1)?;
    e.fits(out.len())?;
    match v {
        V::Undefined(_) => out.push_str("Undefined"),
        V::None => out.push_str("None"),
        V::Bool(b) => out.push_str(if *b { "True" } else { "False" }),
        V::Int(i) => {
            let _ = write!(out, "{i}");
        }
        V::Float(f) => out.push_str(&float_repr(*f)),
        V::Str(t) => {
            e.scan_step(t.s.len())?;
            str_repr(&t.s, out)
        }
        V::List(l) => {
            out.push(if l.tuple { '(' } else { '[' });
            for (i, item) in l.items.iter().enumerate() {
                if i > 0 {
                    out.push_str(", ");
                }
                repr(e, item, out)?;
            }
            if l.tuple && l.items.len() == 1 {
                out.push(',');
            }
            out.push(if l.tuple { ')' } else { ']' });
        }
        V::Map(m) => {
            out.push('{');
            for (i, (k, item)) in m.entries.iter().enumerate() {
                if i > 0 {
                    out.push_str(", ");
                }
                repr(e, k, out)?;
                out.push_str(": ");
                repr(e, item, out)?;
            }
            out.push('}');
        }
        V::Range(a, b, 1) => {
            let _ = write!(out, "range({a}, {b})");
        }
        V::Range(a, b, c) => {
            let _ = write!(out, "range({a}, {b}, {c})");
        }
        V::Namespace(_) => out.push_str("<Namespace>"),
        V::Function(name) => {
            let _ = write!(out, "<function {name}>");
        }
        V::Method(m) => {
            let _ = write!(out, "<method {}>", m.1);
        }
        V::Macro(m) => {
            let _ = write!(out, "<Macro '{}'>", m.name);
        }
        V::Loop(_) => out.push_str("<LoopContext>"),
    }
    Ok(())
}

pub struct JsonStyle {
    pub indent: Option<String>,
    pub item_separator: String,
    pub key_separator: String,
    pub sort_keys: bool,
    pub ensure_ascii: bool,
}

fn json_str(s: &str, ascii: bool, out: &mut String) {
    out.push('"');
    for c in s.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            c if (c as u32) < 0x20 => {
                let _ = write!(out, "\\u{:04x}", c as u32);
            }
            c if ascii && c as u32 > 0x7e => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    let _ = write!(out, "\\u{unit:04x}");
                }
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

fn json_newline(style: &JsonStyle, level: usize, out: &mut String) {
    if let Some(indent) = &style.indent {
        out.push('\n');
        for _ in 0..level {
            out.push_str(indent);
        }
    }
}

/// json.dumps(v, ...)
pub fn json_dumps(e: &mut Eval, v: &V, style: &JsonStyle, level: usize, out: &mut String) -> Res<()> {
    e.step(1)?;
    e.fits(out.len())?;
    match v {
        V::None => out.push_str("null"),
        V::Bool(b) => out.push_str(if *b { "true" } else { "false" }),
        V::Float(f) if f.is_nan() => out.push_str("NaN"),
        V::Float(f) if f.is_infinite() => out.push_str(if *f > 0.0 { "Infinity" } else { "-Infinity" }),
        V::Int(_) | V::Float(_) => repr(e, v, out)?,
        V::Str(t) => {
            e.scan_step(t.s.len())?;
            json_str(&t.s, style.ensure_ascii, out)
        }
        V::List(l) if l.items.is_empty() => out.push_str("[]"),
        V::List(l) => {
            out.push('[');
            for (i, item) in l.items.iter().enumerate() {
                if i > 0 {
                    out.push_str(&style.item_separator);
                }
                json_newline(style, level + 1, out);
                json_dumps(e, item, style, level + 1, out)?;
            }
            json_newline(style, level, out);
            out.push(']');
        }
        V::Map(m) if m.entries.is_empty() => out.push_str("{}"),
        V::Map(m) => {
            let mut order: Vec<&(V, V)> = m.entries.iter().collect();
            if style.sort_keys {
                order.sort_by(|a, b| a.0.as_str().cmp(&b.0.as_str()));
            }
            out.push('{');
            for (i, (k, item)) in order.into_iter().enumerate() {
                if i > 0 {
                    out.push_str(&style.item_separator);
                }
                json_newline(style, level + 1, out);
                match k {
                    V::Str(t) => json_str(&t.s, style.ensure_ascii, out),
                    other => {
                        let mut key = String::new();
                        json_dumps(e, other, style, 0, &mut key)?;
                        json_str(&key, style.ensure_ascii, out)
                    }
                }
                out.push_str(&style.key_separator);
                json_dumps(e, item, style, level + 1, out)?;
            }
            json_newline(style, level, out);
            out.push('}');
        }
        other => return bad(format!("Object of type {} is not JSON serializable", other.type_name())),
    }
    Ok(())
}
