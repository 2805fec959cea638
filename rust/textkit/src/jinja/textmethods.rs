//! Methods of strings, as in Python.

use std::rc::Rc;

use super::eval::Eval;
use super::methods::kwarg;
use super::ops;
use super::pytext::{self, capitalize, is_space, stripped, title};
use super::value::*;

pub const NAMES: &[&str] = &[
    "strip",
    "lstrip",
    "rstrip",
    "split",
    "rsplit",
    "splitlines",
    "startswith",
    "endswith",
    "replace",
    "upper",
    "lower",
    "title",
    "capitalize",
    "join",
    "find",
    "rfind",
    "index",
    "rindex",
    "count",
    "format",
    "isdigit",
    "isalpha",
    "isalnum",
    "isspace",
    "isupper",
    "islower",
    "isnumeric",
    "isdecimal",
    "zfill",
    "center",
    "ljust",
    "rjust",
    "removeprefix",
    "removesuffix",
    "partition",
    "rpartition",
    "swapcase",
    "casefold",
];

pub fn call(e: &mut Eval, t: &Text, name: &str, args: Vec<V>, kwargs: Vec<(String, V)>) -> Res<V> {
    match name {
        "startswith" | "endswith" | "removeprefix" | "removesuffix" | "join" => e.bytes_step(t.s.len())?,
        "strip" | "lstrip" | "rstrip" => {}
        "upper" | "lower" | "casefold" | "title" | "capitalize" | "swapcase" => e.chars_step(t.s.len())?,
        _ => e.scan_step(t.s.len())?,
    }
    if !t.safe {
        return text_method(e, &t.s, name, &args, &kwargs);
    }
    let args = match name {
        "join" => {
            let over = args.first().cloned().unwrap_or(V::None);
            let items = e.iterate(&over)?.iter().map(|v| ops::escape_arg(e, v)).collect::<Res<Vec<_>>>()?;
            vec![V::list(items)?]
        }
        _ => args.iter().map(|v| ops::escape_arg(e, v)).collect::<Res<Vec<_>>>()?,
    };
    text_method(e, &t.s, name, &args, &kwargs)?.marked_safe()
}

fn need<'a>(args: &'a [V], i: usize, method: &str) -> Res<&'a str> {
    match args.get(i) {
        Some(V::Str(t)) => Ok(&t.s),
        Some(other) => {
            ops::undefined_error(other)?;
            bad(format!("{method}() needs a string, not {}", other.type_name()))
        }
        None => bad(format!("{method}() is missing an argument")),
    }
}

fn texts(e: &mut Eval, parts: Vec<&str>) -> Res<V> {
    let bytes: usize = parts.iter().map(|p| p.len()).sum();
    e.reserve_values(parts.len(), bytes)?;
    V::list(parts.into_iter().map(V::str).collect())
}

pub fn replace(e: &mut Eval, s: &str, old: &str, new: &str, count: Option<i128>) -> Res<V> {
    e.scan_step(s.len())?;
    let limit = count.filter(|c| *c >= 0).map_or(usize::MAX, |c| c as usize);
    let hits = if old.is_empty() { s.chars().count() + 1 } else { s.matches(old).count() }.min(limit);
    e.reserve(s.len().saturating_add(hits.saturating_mul(new.len())))?;
    e.chars_step(hits)?;
    Ok(V::str(s.replacen(old, new, hits)))
}

/// str.split: by a separator, or by runs of white space.
pub fn split<'a>(s: &'a str, sep: Option<&str>, max: i128, from_right: bool) -> Res<Vec<&'a str>> {
    let max = if max < 0 { usize::MAX } else { max as usize };
    Ok(match sep {
        Some("") => return bad("empty separator"),
        Some(sep) if from_right => {
            let mut v: Vec<&str> = s.rsplitn(max.saturating_add(1), sep).collect();
            v.reverse();
            v
        }
        Some(sep) => s.splitn(max.saturating_add(1), sep).collect(),
        None => {
            let mut out = Vec::new();
            let mut rest = if from_right { s.trim_end_matches(is_space) } else { s.trim_start_matches(is_space) };
            while !rest.is_empty() {
                let cut = if from_right { rest.rfind(is_space) } else { rest.find(is_space) };
                match cut {
                    Some(at) if out.len() < max => {
                        if from_right {
                            let next = at + rest[at..].chars().next().map_or(1, char::len_utf8);
                            out.push(&rest[next..]);
                            rest = rest[..at].trim_end_matches(is_space);
                        } else {
                            out.push(&rest[..at]);
                            rest = rest[at..].trim_start_matches(is_space);
                        }
                    }
                    _ => {
                        out.push(rest);
                        break;
                    }
                }
            }
            if from_right {
                out.reverse();
            }
            out
        }
    })
}

fn pad(e: &mut Eval, s: &str, args: &[V], left: impl Fn(usize) -> usize) -> Res<V> {
    let width = args.first().and_then(V::as_int).ok_or_else(|| Fault::Bad("a width is needed".into()))?;
    let fill = args.get(1).and_then(V::as_str).and_then(|f| f.chars().next()).unwrap_or(' ');
    let len = s.chars().count() as i128;
    let gap = usize::try_from((width - len).max(0)).unwrap_or(usize::MAX);
    e.reserve(s.len().saturating_add(gap.saturating_mul(4)))?;
    let before = left(gap);
    let fills = |n: usize| std::iter::repeat_n(fill, n).collect::<String>();
    Ok(V::str(format!("{}{s}{}", fills(before), fills(gap - before))))
}

pub fn center(e: &mut Eval, s: &str, args: &[V]) -> Res<V> {
    let width = args.first().and_then(V::as_int).unwrap_or(0);
    pad(e, s, args, |gap| gap / 2 + (gap & (width & 1) as usize & 1))
}

fn text_method(e: &mut Eval, s: &str, name: &str, args: &[V], kwargs: &[(String, V)]) -> Res<V> {
    match name {
        "split" | "rsplit" => split_method(e, s, name, args, kwargs),
        "partition" | "rpartition" => partition(e, s, name, args),
        "upper" | "lower" | "casefold" | "title" | "capitalize" | "swapcase" => change_case(e, s, name),
        "find" | "rfind" | "index" | "rindex" => search(s, name, args),
        "zfill" | "center" | "ljust" | "rjust" => pad_method(e, s, name, args),
        _ if name.starts_with("is") => property(e, s, name),
        "strip" | "lstrip" | "rstrip" => {
            let set = optional(name, args, kwargs, 0, "chars")?;
            let set = set.as_ref().map(|t| &*t.s);
            stripped(e, s, set, name != "rstrip", name != "lstrip")
        }
        "splitlines" => {
            let ends = s.bytes().filter(|b| *b < b' ' || *b >= 0x80).count();
            e.fits(ends.saturating_mul(16))?;
            let keep = args.first().cloned().or_else(|| kwarg(kwargs, "keepends")).is_some_and(|v| v.truthy());
            texts(e, pytext::lines(s, keep))
        }
        "startswith" | "endswith" => {
            let test = |p: &str| if name == "startswith" { s.starts_with(p) } else { s.ends_with(p) };
            match args.first() {
                Some(V::List(l)) if l.tuple => Ok(V::Bool(l.items.iter().filter_map(V::as_str).any(test))),
                _ => Ok(V::Bool(test(need(args, 0, name)?))),
            }
        }
        "replace" => {
            let count = args.get(2).cloned().or_else(|| kwarg(kwargs, "count")).and_then(|v| v.as_int());
            replace(e, s, need(args, 0, name)?, need(args, 1, name)?, count)
        }
        "join" => {
            let over = args.first().cloned().unwrap_or(V::None);
            let items = e.iterate(&over)?;
            if let Some(other) = items.iter().find(|v| v.as_str().is_none()) {
                return bad(format!("sequence item: expected str instance, {} found", other.type_name()));
            }
            join(e, s, &items)
        }
        "count" => match need(args, 0, name)? {
            "" => Ok(V::Int(s.chars().count() as i128 + 1)),
            wanted => Ok(V::Int(s.matches(wanted).count() as i128)),
        },
        "format" => super::format::brace_format(e, s, args, kwargs),
        "removeprefix" => e.text(s.strip_prefix(need(args, 0, name)?).unwrap_or(s)),
        "removesuffix" => e.text(s.strip_suffix(need(args, 0, name)?).unwrap_or(s)),
        _ => bad(format!("no string method named '{name}'")),
    }
}

fn optional(name: &str, args: &[V], kwargs: &[(String, V)], i: usize, key: &str) -> Res<Option<Rc<Text>>> {
    match args.get(i).cloned().or_else(|| kwarg(kwargs, key)) {
        Some(V::None) | None => Ok(None),
        Some(V::Str(t)) => Ok(Some(t)),
        Some(other) => bad(format!("{name}() needs a string, not {}", other.type_name())),
    }
}

fn split_method(e: &mut Eval, s: &str, name: &str, args: &[V], kwargs: &[(String, V)]) -> Res<V> {
    let sep = optional(name, args, kwargs, 0, "sep")?;
    let max = args.get(1).cloned().or_else(|| kwarg(kwargs, "maxsplit")).and_then(|v| v.as_int()).unwrap_or(-1);
    let cuts = match &sep {
        Some(sep) => s.matches(&*sep.s).count(),
        None => s.bytes().filter(|b| *b <= b' ' || *b >= 0x80).count(),
    };
    e.fits(cuts.saturating_mul(16))?;
    let parts = split(s, sep.as_ref().map(|t| &*t.s), max, name == "rsplit")?;
    texts(e, parts)
}

fn partition(e: &mut Eval, s: &str, name: &str, args: &[V]) -> Res<V> {
    let sep = need(args, 0, name)?;
    if sep.is_empty() {
        return bad("empty separator");
    }
    let cut = if name == "partition" { s.split_once(sep) } else { s.rsplit_once(sep) };
    let (a, b, c) = match cut {
        Some((a, c)) => (a, sep, c),
        None if name == "partition" => (s, "", ""),
        None => ("", "", s),
    };
    let parts = vec![e.text(a)?, e.text(b)?, e.text(c)?];
    V::tuple(parts)
}

fn search(s: &str, name: &str, args: &[V]) -> Res<V> {
    let wanted = need(args, 0, name)?;
    let at = if name.starts_with('r') { s.rfind(wanted) } else { s.find(wanted) };
    match at {
        Some(at) => Ok(V::Int(s[..at].chars().count() as i128)),
        None if name.ends_with("index") => bad("substring not found"),
        None => Ok(V::Int(-1)),
    }
}

fn change_case(e: &mut Eval, s: &str, name: &str) -> Res<V> {
    match name {
        "upper" => e.text(s.to_uppercase()),
        "lower" | "casefold" => e.text(s.to_lowercase()),
        "title" => e.text(title(s)),
        "capitalize" => e.text(capitalize(s)),
        _ => {
            let swap = |c: char| if c.is_uppercase() { c.to_lowercase().collect::<String>() } else { c.to_uppercase().collect() };
            e.text(s.chars().map(swap).collect::<String>())
        }
    }
}

/// `isdigit` and the like.
fn property(e: &mut Eval, s: &str, name: &str) -> Res<V> {
    let all = |f: fn(char) -> bool| Ok(V::Bool(!s.is_empty() && s.chars().all(f)));
    match name {
        "isdigit" | "isdecimal" => all(|c| c.is_ascii_digit() || c.is_numeric() && !c.is_ascii()),
        "isnumeric" => all(char::is_numeric),
        "isalpha" => all(char::is_alphabetic),
        "isalnum" => all(char::is_alphanumeric),
        "isspace" => all(is_space),
        "isupper" => super::tests::check(e, "upper", &V::str(s), &[]).map(V::Bool),
        "islower" => super::tests::check(e, "lower", &V::str(s), &[]).map(V::Bool),
        _ => bad(format!("no string method named '{name}'")),
    }
}

fn pad_method(e: &mut Eval, s: &str, name: &str, args: &[V]) -> Res<V> {
    match name {
        "zfill" => {
            let (sign, digits) = if s.starts_with(['-', '+']) { s.split_at(1) } else { ("", s) };
            let width = args.first().and_then(V::as_int).unwrap_or(0) - sign.len() as i128;
            let padded = pad(e, digits, &[V::Int(width), V::str("0")], |gap| gap)?;
            e.join_text(&[sign, padded.as_str().unwrap_or_default()])
        }
        "center" => center(e, s, args),
        "ljust" => pad(e, s, args, |_| 0),
        _ => pad(e, s, args, |gap| gap),
    }
}

/// str(item) of all items with `sep` between.
pub fn join(e: &mut Eval, sep: &str, items: &[V]) -> Res<V> {
    let mut out = String::new();
    for (i, item) in items.iter().enumerate() {
        let text = pytext::str_of(e, item)?;
        e.bytes_step(text.len() + sep.len())?;
        e.fits(out.len() + text.len() + sep.len())?;
        if i > 0 {
            out.push_str(sep);
        }
        out.push_str(&text);
    }
    e.text(out)
}
