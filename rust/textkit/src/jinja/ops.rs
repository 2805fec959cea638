//! Operators of Jinja with Python's meaning.

use super::eval::Eval;
use super::pytext::str_of;
use super::value::*;

/// Equality of numbers, booleans, strings and None (what can be a key).
pub fn same_scalar(a: &V, b: &V) -> bool {
    match (a, b) {
        (V::Str(x), V::Str(y)) => x.s == y.s,
        (V::None, V::None) => true,
        _ => match (a.as_int(), b.as_int()) {
            (Some(x), Some(y)) => x == y,
            _ => matches!((a.as_float(), b.as_float()), (Some(x), Some(y)) if x == y),
        },
    }
}

/// `a == b`; every compared element costs a step (a value may share its parts and be huge when written out).
pub fn equal(e: &mut Eval, a: &V, b: &V) -> Res<bool> {
    e.step(1)?;
    Ok(match (a, b) {
        (V::List(x), V::List(y)) => {
            if x.items.len() != y.items.len() || x.tuple != y.tuple {
                return Ok(false);
            }
            for (p, q) in x.items.iter().zip(&y.items) {
                if !equal(e, p, q)? {
                    return Ok(false);
                }
            }
            true
        }
        (V::Map(x), V::Map(y)) => {
            if x.entries.len() != y.entries.len() {
                return Ok(false);
            }
            for (k, v) in &x.entries {
                match y.get_value(k) {
                    Some(w) if equal(e, v, w)? => {}
                    _ => return Ok(false),
                }
            }
            true
        }
        (V::Str(x), V::Str(y)) => {
            e.bytes_step(x.s.len().min(y.s.len()))?;
            x.s == y.s
        }
        (V::Undefined(_), V::Undefined(_)) => true,
        (V::Range(a, b, c), V::Range(x, y, z)) => (a, b, c) == (x, y, z),
        (V::Function(x), V::Function(y)) => x == y,
        (V::Namespace(x), V::Namespace(y)) => std::rc::Rc::ptr_eq(x, y),
        (V::Macro(x), V::Macro(y)) => std::rc::Rc::ptr_eq(x, y),
        _ => same_scalar(a, b),
    })
}

/// Order of numbers, strings and sequences; anything else is a type error as in Python.
pub fn compare(e: &mut Eval, a: &V, b: &V) -> Res<std::cmp::Ordering> {
    use std::cmp::Ordering;
    e.step(1)?;
    match (a, b) {
        (V::Str(x), V::Str(y)) => {
            e.bytes_step(x.s.len().min(y.s.len()))?;
            Ok(x.s.cmp(&y.s))
        }
        (V::List(x), V::List(y)) if x.tuple == y.tuple => {
            for (p, q) in x.items.iter().zip(&y.items) {
                if !equal(e, p, q)? {
                    return compare(e, p, q);
                }
            }
            Ok(x.items.len().cmp(&y.items.len()))
        }
        _ => {
            if let (Some(x), Some(y)) = (a.as_int(), b.as_int()) {
                return Ok(x.cmp(&y));
            }
            if let (Some(x), Some(y)) = (a.as_float(), b.as_float()) {
                return Ok(x.partial_cmp(&y).unwrap_or(Ordering::Less));
            }
            undefined_error(a)?;
            undefined_error(b)?;
            bad(format!("'<' not supported between instances of '{}' and '{}'", a.type_name(), b.type_name()))
        }
    }
}

pub fn undefined_error(v: &V) -> Res<()> {
    match v {
        V::Undefined(name) => bad(format!("'{name}' is undefined")),
        _ => Ok(()),
    }
}

/// `needle in hay`.
pub fn contains(e: &mut Eval, hay: &V, needle: &V) -> Res<bool> {
    match hay {
        V::Str(h) => match needle {
            V::Str(n) => {
                e.scan_step(h.s.len())?;
                Ok(h.s.contains(&*n.s))
            }
            other => bad(format!("'in <string>' requires string as left operand, not {}", other.type_name())),
        },
        V::Map(m) => match needle {
            V::List(_) | V::Map(_) => bad(format!("unhashable type: '{}'", needle.type_name())),
            _ => {
                e.step(1)?;
                m.charge(e, needle)?;
                Ok(m.get_value(needle).is_some())
            }
        },
        V::Undefined(_) => Ok(false),
        V::Namespace(_) | V::None | V::Bool(_) | V::Int(_) | V::Float(_) => {
            bad(format!("argument of type '{}' is not iterable", hay.type_name()))
        }
        _ => {
            for v in e.iterate(hay)? {
                if equal(e, &v, needle)? {
                    return Ok(true);
                }
            }
            Ok(false)
        }
    }
}

/// What may be a key, or an item of a set.
pub fn hashable(v: &V) -> Res<()> {
    match v {
        V::Map(_) => bad("unhashable type: 'dict'"),
        V::List(l) if !l.tuple => bad("unhashable type: 'list'"),
        V::List(l) => l.items.iter().try_for_each(hashable),
        _ => Ok(()),
    }
}

/// The text as HTML: unchanged when it is safe already (markupsafe.escape).
pub fn escaped(e: &mut Eval, v: &V) -> Res<String> {
    let s = str_of(e, v)?;
    if v.is_safe() {
        return Ok(s.to_string());
    }
    let longer = s.bytes().filter(|b| b"&<>'\"".contains(b)).count();
    e.scan_step(s.len())?;
    e.chars_step(longer)?;
    e.reserve(s.len().saturating_add(longer.saturating_mul(4)))?;
    Ok(s.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('\'', "&#39;").replace('"', "&#34;"))
}

/// What a safe format string does to its arguments.
pub fn escape_arg(e: &mut Eval, v: &V) -> Res<V> {
    match v {
        V::Str(_) => Ok(V::markup(escaped(e, v)?)),
        _ => Ok(v.clone()),
    }
}

/// `a ~ b`
pub fn concat(e: &mut Eval, a: &V, b: &V) -> Res<V> {
    let x = str_of(e, a)?;
    let y = str_of(e, b)?;
    e.join_text(&[&x, &y])
}

/// Positions of a slice with Python's rules.
pub fn slice_positions(len: i128, start: Option<i128>, stop: Option<i128>, step: i128) -> Vec<usize> {
    let clamp = |v: i128, low: i128, high: i128| if v < 0 { (v + len).max(low) } else { v.min(high) };
    let (first, last) = if step > 0 {
        (start.map_or(0, |v| clamp(v, 0, len)), stop.map_or(len, |v| clamp(v, 0, len)))
    } else {
        (start.map_or(len - 1, |v| clamp(v, -1, len - 1)), stop.map_or(-1, |v| clamp(v, -1, len - 1)))
    };
    let mut out = Vec::new();
    let mut at = first;
    while (step > 0 && at < last) || (step < 0 && at > last) {
        out.push(at as usize);
        match at.checked_add(step) {
            Some(next) => at = next,
            None => break,
        }
    }
    out
}

pub fn slice(e: &mut Eval, v: &V, start: &V, stop: &V, step: &V) -> Res<V> {
    let bound = |b: &V| -> Res<Option<i128>> {
        match b {
            V::None => Ok(None),
            _ => b.as_int().map(Some).ok_or_else(|| Fault::Bad("slice indices must be integers or None".into())),
        }
    };
    undefined_error(v)?;
    // Jinja turns the type error of a wrong subscript into an undefined value.
    let (Ok(start), Ok(stop), Ok(step)) = (bound(start), bound(stop), bound(step)) else { return Ok(V::undefined("slice")) };
    let step = step.unwrap_or(1);
    if step == 0 {
        return bad("slice step cannot be zero");
    }
    let step = step.clamp(-(1 << 62), 1 << 62);
    match v {
        V::Str(t) => {
            e.chars_step(t.s.len())?;
            e.reserve(t.s.len().saturating_mul(4))?;
            let chars: Vec<char> = t.s.chars().collect();
            let at = slice_positions(chars.len() as i128, start, stop, step);
            let text: String = at.iter().map(|&i| chars[i]).collect();
            Ok(if t.safe { V::markup(text) } else { V::str(text) })
        }
        V::List(l) => {
            e.reserve(l.items.len() * 32)?;
            let at = slice_positions(l.items.len() as i128, start, stop, step);
            let items = at.iter().map(|&i| l.items[i].clone()).collect();
            if l.tuple {
                V::tuple(items)
            } else {
                V::list(items)
            }
        }
        V::Range(from, to, by) => {
            let n = range_len(*from, *to, *by) as i128;
            let clamp = |v: i128, low: i128, high: i128| if v < 0 { v.saturating_add(n).max(low) } else { v.min(high) };
            let (low, high) = if step > 0 { (0, n) } else { (-1, n - 1) };
            let first = start.map_or(if step > 0 { 0 } else { n - 1 }, |v| clamp(v, low, high));
            let last = stop.map_or(if step > 0 { n } else { -1 }, |v| clamp(v, low, high));
            let at = |i: i128| i64::try_from(*from as i128 + i * *by as i128);
            match (at(first), at(last), i64::try_from(step.saturating_mul(*by as i128))) {
                (Ok(a), Ok(b), Ok(c)) => Ok(V::Range(a, b, c)),
                _ => bad("range() is too large"),
            }
        }
        _ => Ok(V::undefined("slice")),
    }
}
