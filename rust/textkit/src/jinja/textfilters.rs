//! Filters over texts.

use std::fmt::Write;

use super::eval::Eval;
use super::filters::{length, Call};
use super::ops;
use super::pytext::{self, str_of};
use super::textmethods;
use super::value::*;

pub const NAMES: &[&str] = &[
    "trim",
    "lower",
    "upper",
    "title",
    "capitalize",
    "center",
    "replace",
    "indent",
    "format",
    "urlencode",
    "truncate",
    "wordcount",
    "pprint",
];

/// A filter of NAMES.
pub fn apply(e: &mut Eval, name: &str, v: &V, c: &Call) -> Res<V> {
    match name {
        "trim" => {
            let s = str_of(e, v)?;
            let set = c.get(0, "chars");
            pytext::stripped(e, &s, set.as_ref().and_then(V::as_str), true, true)
        }
        "lower" | "upper" | "title" | "capitalize" => change_case(e, name, v),
        "center" => {
            let s = str_of(e, v)?;
            let width = c.int(0, "width", 80)?;
            textmethods::center(e, &s, &[V::Int(width)])
        }
        "replace" => {
            let s = str_of(e, v)?;
            let (old, new) = (c.text(e, 0, "old", "")?, c.text(e, 1, "new", "")?);
            let count = c.get(2, "count").and_then(|n| n.as_int());
            textmethods::replace(e, &s, &old, &new, count)
        }
        "indent" => indent(e, v, c),
        "format" => {
            let s = str_of(e, v)?;
            let whole = if c.kwargs.is_empty() {
                V::None
            } else {
                V::map(c.kwargs.iter().map(|(k, x)| (V::str(k.as_str()), x.clone())).collect())?
            };
            super::format::percent_format(e, &s, &c.args, &whole)
        }
        "urlencode" => {
            let out = urlencode(e, v)?;
            e.text(out)
        }
        "truncate" => truncate(e, v, c),
        "wordcount" => {
            let s = str_of(e, v)?;
            e.chars_step(s.len())?;
            Ok(V::Int(s.split(|ch: char| !ch.is_alphanumeric() && ch != '_').filter(|w| !w.is_empty()).count() as i128))
        }
        "pprint" => {
            let mut s = String::new();
            let sorted = sorted_keys(e, v)?;
            pytext::repr(e, &sorted, &mut s)?;
            e.text(s)
        }
        _ => bad(format!("no filter named '{name}'")),
    }
}

fn change_case(e: &mut Eval, name: &str, v: &V) -> Res<V> {
    let s = str_of(e, v)?;
    e.chars_step(s.len())?;
    e.text(match name {
        "lower" => s.to_lowercase(),
        "upper" => s.to_uppercase(),
        "title" => pytext::title_words(&s),
        _ => pytext::capitalize(&s),
    })
}

/// pprint writes mappings in the order of their keys (lines are not broken).
pub fn sorted_keys(e: &mut Eval, v: &V) -> Res<V> {
    e.step(1)?;
    Ok(match v {
        V::Map(m) => {
            e.reserve(m.entries.len() * 128)?;
            let mut entries = m.entries.clone();
            entries.sort_by(|a, b| a.0.as_str().cmp(&b.0.as_str()));
            let entries = entries.into_iter().map(|(k, x)| Ok((k, sorted_keys(e, &x)?))).collect::<Res<Vec<_>>>()?;
            V::map(entries)?
        }
        V::List(l) => {
            e.reserve(l.items.len() * 32)?;
            let items = l.items.iter().map(|x| sorted_keys(e, x)).collect::<Res<Vec<_>>>()?;
            if l.tuple {
                V::tuple(items)?
            } else {
                V::list(items)?
            }
        }
        _ => v.clone(),
    })
}

pub fn indent(e: &mut Eval, v: &V, c: &Call) -> Res<V> {
    ops::undefined_error(v)?;
    let V::Str(_) = v else { return bad(format!("indent needs a string, not {}", v.type_name())) };
    let s = str_of(e, v)?;
    let prefix = match c.get(0, "width") {
        Some(V::Str(t)) => t.s.to_string(),
        Some(n) => " ".repeat(n.as_int().unwrap_or(4).clamp(0, 1000) as usize),
        None => "    ".to_string(),
    };
    let (first, blank) = (c.flag(1, "first"), c.flag(2, "blank"));
    e.scan_step(s.len())?;
    let lines = s.matches('\n').count() + 1;
    e.reserve(s.len().saturating_add(lines.saturating_mul(prefix.len() + 1)))?;
    let mut out = String::with_capacity(s.len());
    for (i, line) in s.split('\n').enumerate() {
        if i > 0 {
            out.push('\n');
        }
        if (i > 0 && (blank || !line.is_empty())) || (i == 0 && first) {
            out.push_str(&prefix);
        }
        out.push_str(line);
    }
    e.text(out)
}

/// A text is quoted; a mapping or pairs become a query.
pub fn urlencode(e: &mut Eval, v: &V) -> Res<String> {
    let pairs = match v {
        V::Map(m) => m.entries.clone(),
        V::List(_) | V::Range(..) | V::Undefined(_) => {
            let mut pairs = Vec::new();
            for item in e.iterate(v)? {
                match e.iterate(&item)?.as_slice() {
                    [k, x] => pairs.push((k.clone(), x.clone())),
                    other => return bad(format!("urlencode needs pairs, not {} values", other.len())),
                }
            }
            pairs
        }
        _ => {
            let s = str_of(e, v)?;
            return quoted(e, &s);
        }
    };
    let mut out = String::new();
    for (k, x) in pairs {
        let (k, x) = (str_of(e, &k)?, str_of(e, &x)?);
        let sides = [quoted(e, &k)?, quoted(e, &x)?];
        let [k, x] = sides.map(|s| s.replace('/', "%2F").replace("%20", "+"));
        e.fits(out.len() + k.len() + x.len())?;
        if !out.is_empty() {
            out.push('&');
        }
        out += &format!("{k}={x}");
    }
    Ok(out)
}

/// urllib.parse.quote with "/" kept.
fn quoted(e: &mut Eval, s: &str) -> Res<String> {
    e.chars_step(s.len())?;
    let changed = |b: &u8| !(b.is_ascii_alphanumeric() || b"_.-~/".contains(b));
    e.reserve(s.len().saturating_add(s.bytes().filter(changed).count() * 2))?;
    let mut out = String::new();
    for b in s.bytes() {
        if changed(&b) {
            let _ = write!(out, "%{b:02X}");
        } else {
            out.push(b as char);
        }
    }
    Ok(out)
}

pub fn truncate(e: &mut Eval, v: &V, c: &Call) -> Res<V> {
    let V::Int(len) = length(e, v)? else { return bad("no length") };
    let size = len as usize;
    let length = c.int(0, "length", 255)?.max(0) as usize;
    let end = c.text(e, 2, "end", "...")?;
    let leeway = c.int(3, "leeway", 5)?.max(0) as usize;
    if length < end.chars().count() {
        return bad(format!("truncate: expected length >= {}, got {length}", end.chars().count()));
    }
    if size <= length.saturating_add(leeway) {
        return Ok(v.clone());
    }
    let V::Str(_) = v else { return bad(format!("truncate needs a string, not {}", v.type_name())) };
    let s = str_of(e, v)?;
    e.scan_step(s.len())?;
    let keep: String = s.chars().take(length.saturating_sub(end.chars().count())).collect();
    let kept = if c.flag(1, "killwords") { &keep[..] } else { keep.rsplit_once(' ').map_or(&keep[..], |x| x.0) };
    e.join_text(&[kept, &end])
}
