//! Filters of Jinja2 that chat templates use.

use super::eval::Eval;
use super::limits::MAX_JSON_INDENT;
use super::methods::{self, kwarg};
use super::ops;
use super::pytext::{self, str_of, JsonStyle};
use super::textfilters;
use super::value::*;

const NAMES: &[&str] = &[
    "abs",
    "attr",
    "batch",
    "capitalize",
    "center",
    "count",
    "d",
    "default",
    "dictsort",
    "e",
    "escape",
    "first",
    "float",
    "format",
    "groupby",
    "indent",
    "int",
    "items",
    "join",
    "last",
    "length",
    "list",
    "lower",
    "map",
    "max",
    "min",
    "reject",
    "rejectattr",
    "replace",
    "reverse",
    "round",
    "safe",
    "select",
    "selectattr",
    "slice",
    "sort",
    "string",
    "sum",
    "title",
    "tojson",
    "trim",
    "truncate",
    "unique",
    "upper",
    "urlencode",
    "wordcount",
    "forceescape",
    "pprint",
];

pub fn known(name: &str) -> bool {
    NAMES.contains(&name)
}

pub(super) struct Call {
    pub(super) args: Vec<V>,
    pub(super) kwargs: Vec<(String, V)>,
}

impl Call {
    pub(super) fn get(&self, i: usize, name: &str) -> Option<V> {
        self.args.get(i).cloned().or_else(|| kwarg(&self.kwargs, name))
    }
    pub(super) fn flag(&self, i: usize, name: &str) -> bool {
        self.get(i, name).is_some_and(|v| v.truthy())
    }
    pub(super) fn int(&self, i: usize, name: &str, default: i128) -> Res<i128> {
        match self.get(i, name) {
            None => Ok(default),
            Some(v) => v.as_int().ok_or_else(|| Fault::Bad(format!("'{name}' must be an integer"))),
        }
    }
    pub(super) fn text(&self, e: &mut Eval, i: usize, name: &str, default: &str) -> Res<String> {
        match self.get(i, name) {
            None => Ok(default.to_string()),
            Some(v) => Ok(str_of(e, &v)?.to_string()),
        }
    }
}

pub fn apply(e: &mut Eval, name: &str, v: V, args: Vec<V>, kwargs: Vec<(String, V)>) -> Res<V> {
    // These keep the mark of |safe (they call the string's own method); the others give plain text.
    let keeps_mark = v.is_safe() && matches!(name, "trim" | "lower" | "upper" | "capitalize" | "indent" | "center");
    let result = apply_plain(e, name, v, Call { args, kwargs })?;
    if keeps_mark {
        result.marked_safe()
    } else {
        Ok(result)
    }
}

fn apply_plain(e: &mut Eval, name: &str, v: V, c: Call) -> Res<V> {
    match name {
        "tojson" => tojson(e, &v, &c),
        "length" | "count" => length(e, &v),
        "string" => match v {
            V::Str(_) => Ok(v),
            _ => {
                let s = str_of(e, &v)?.to_string();
                e.text(s)
            }
        },
        "default" | "d" => {
            let use_default = v.is_undefined() || (c.flag(1, "boolean") && !v.truthy());
            Ok(if use_default { c.get(0, "default_value").unwrap_or_else(|| V::str("")) } else { v })
        }
        "safe" => {
            let s = str_of(e, &v)?.to_string();
            e.text(s)?.marked_safe()
        }
        "list" => {
            let items = e.iterate(&v)?;
            V::list(items)
        }
        "items" => match &v {
            V::Undefined(_) => V::list(Vec::new()),
            V::Map(_) => methods::call(e, &v, "items", Vec::new(), Vec::new()),
            _ => bad("Can only get item pairs from a mapping."),
        },
        "join" => join(e, &v, &c),
        "first" | "last" => ends(e, &v, name == "first"),
        "escape" | "e" => Ok(V::markup(ops::escaped(e, &v)?)),
        "forceescape" => {
            let plain = V::str(&*str_of(e, &v)?);
            Ok(V::markup(ops::escaped(e, &plain)?))
        }
        "reverse" => match &v {
            V::Str(t) => {
                e.chars_step(t.s.len())?;
                let s: String = t.s.chars().rev().collect();
                e.text(s)
            }
            _ => {
                let mut items = e.iterate(&v)?;
                items.reverse();
                V::list(items)
            }
        },
        "attr" => match c.args.first() {
            Some(V::Str(n)) => super::expr::get_attr(&v, &n.s),
            _ => bad("attr needs a name"),
        },
        "abs" | "int" | "float" | "round" => number(e, name, v, &c),
        _ if textfilters::NAMES.contains(&name) => textfilters::apply(e, name, &v, &c),
        _ => super::seqfilters::apply(e, name, v, c.args, c.kwargs),
    }
}

fn number(e: &mut Eval, name: &str, v: V, c: &Call) -> Res<V> {
    match name {
        "abs" => match &v {
            V::Float(f) => Ok(V::Float(f.abs())),
            _ => v.as_int().and_then(i128::checked_abs).map(V::Int).ok_or_else(|| Fault::Bad("abs needs a number".into())),
        },
        "int" | "float" if v.is_undefined() => ops::undefined_error(&v).map(|()| v),
        "int" => Ok(to_int(&v).map_or_else(|| c.get(0, "default").unwrap_or(V::Int(0)), V::Int)),
        "float" => {
            let parsed = v.as_float().or_else(|| v.as_str().and_then(|s| s.trim().replace('_', "").parse().ok()));
            Ok(parsed.map_or_else(|| c.get(0, "default").unwrap_or(V::Float(0.0)), V::Float))
        }
        _ => round(e, &v, c),
    }
}

pub fn to_int(v: &V) -> Option<i128> {
    match v {
        V::Float(f) if f.is_finite() && f.abs() < 1e36 => Some(f.trunc() as i128),
        V::Str(t) => {
            let s = t.s.trim();
            s.parse()
                .ok()
                .or_else(|| s.parse::<f64>().ok().filter(|f| f.is_finite() && f.abs() < 1e36).map(|f| f.trunc() as i128))
        }
        _ => v.as_int(),
    }
}

pub(super) fn length(e: &mut Eval, v: &V) -> Res<V> {
    Ok(V::Int(match v {
        V::Str(t) => {
            e.bytes_step(t.s.len())?;
            t.s.chars().count() as i128
        }
        V::List(l) => l.items.len() as i128,
        V::Map(m) => m.entries.len() as i128,
        V::Range(a, b, s) => range_len(*a, *b, *s) as i128,
        V::Undefined(_) => 0,
        V::Loop(l) => l.items.len() as i128,
        other => return bad(format!("object of type '{}' has no len()", other.type_name())),
    }))
}

/// Hugging Face's tojson: json.dumps(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False).
fn tojson(e: &mut Eval, v: &V, c: &Call) -> Res<V> {
    let at = |e: &mut Eval, name: &str| -> Res<Option<V>> {
        let _ = e;
        Ok(kwarg(&c.kwargs, name).filter(|x| !matches!(x, V::None)))
    };
    let ensure_ascii = c.args.first().cloned().or(at(e, "ensure_ascii")?);
    let indent = c.args.get(1).cloned().or(at(e, "indent")?);
    let indent = match indent {
        None | Some(V::None) => None,
        Some(V::Str(t)) => Some(t.s.to_string()),
        Some(n) => {
            let n = n.as_int().ok_or_else(|| Fault::Bad("indent must be an integer or a string".into()))?;
            Some(" ".repeat(n.clamp(0, MAX_JSON_INDENT as i128) as usize))
        }
    };
    if indent.as_ref().is_some_and(|i| i.len() > MAX_JSON_INDENT) {
        return bad("indent is too long");
    }
    let (mut item_separator, mut key_separator) = ((if indent.is_some() { "," } else { ", " }).to_string(), ": ".to_string());
    if let Some(V::List(l)) = c.args.get(2).cloned().or(at(e, "separators")?) {
        if let [V::Str(a), V::Str(b)] = l.items.as_slice() {
            (item_separator, key_separator) = (a.s.to_string(), b.s.to_string());
        }
    }
    let sort_keys = c.args.get(3).cloned().or(at(e, "sort_keys")?).is_some_and(|x| x.truthy());
    let style =
        JsonStyle { indent, item_separator, key_separator, sort_keys, ensure_ascii: ensure_ascii.is_some_and(|x| x.truthy()) };
    let mut out = String::new();
    pytext::json_dumps(e, v, &style, 0, &mut out)?;
    e.text(out)
}

fn join(e: &mut Eval, v: &V, c: &Call) -> Res<V> {
    let sep = c.text(e, 0, "d", "")?;
    let mut items = e.iterate(v)?;
    if let Some(attribute) = c.get(1, "attribute") {
        for item in items.iter_mut() {
            *item = super::seqfilters::attribute(e, item, &attribute)?;
        }
    }
    super::textmethods::join(e, &sep, &items)
}

fn ends(e: &mut Eval, v: &V, first: bool) -> Res<V> {
    let found = match v {
        V::Str(t) => (if first { t.s.chars().next() } else { t.s.chars().next_back() }).map(|c| V::str(c.to_string())),
        V::List(l) => (if first { l.items.first() } else { l.items.last() }).cloned(),
        _ => {
            let items = e.iterate(v)?;
            (if first { items.first() } else { items.last() }).cloned()
        }
    };
    Ok(found.unwrap_or_else(|| V::undefined("the item of an empty sequence")))
}

fn round(e: &mut Eval, v: &V, c: &Call) -> Res<V> {
    let Some(x) = v.as_float() else { return bad("round needs a number") };
    let digits = c.int(0, "precision", 0)?.clamp(-300, 300) as i32;
    let method = c.text(e, 1, "method", "common")?;
    let scale = 10f64.powi(digits);
    if let (Some(i), "common", true) = (v.as_int(), method.as_str(), digits >= 0) {
        return Ok(V::Int(i));
    }
    Ok(V::Float(match method.as_str() {
        "ceil" => (x * scale).ceil() / scale,
        "floor" => (x * scale).floor() / scale,
        // Python rounds the exact decimal value half to even; printing with that many digits does the same.
        _ if digits >= 0 => format!("{x:.*}", digits as usize).parse().unwrap_or(x),
        _ => (x * scale).round_ties_even() / scale,
    }))
}
