//! `is ...` tests.

use super::eval::Eval;
use super::ops;
use super::value::*;

pub fn check(e: &mut Eval, name: &str, v: &V, args: &[V]) -> Res<bool> {
    use std::cmp::Ordering::*;
    e.scan_step(v.as_str().map_or(0, str::len))?;
    let arg = |i: usize| args.get(i).ok_or_else(|| Fault::Bad(format!("the test '{name}' needs an argument")));
    let int = |v: &V| v.as_int().ok_or_else(|| Fault::Bad(format!("the test '{name}' needs integers")));
    Ok(match name {
        "defined" => !v.is_undefined(),
        "undefined" => v.is_undefined(),
        "none" => matches!(v, V::None),
        "boolean" => matches!(v, V::Bool(_)),
        "true" => matches!(v, V::Bool(true)),
        "false" => matches!(v, V::Bool(false)),
        "integer" => matches!(v, V::Int(_)),
        "float" => matches!(v, V::Float(_)),
        "number" => matches!(v, V::Int(_) | V::Float(_) | V::Bool(_)),
        "string" => matches!(v, V::Str(_)),
        "mapping" => matches!(v, V::Map(_)),
        "sequence" => matches!(v, V::List(_) | V::Str(_) | V::Map(_) | V::Range(..) | V::Undefined(_)),
        "iterable" => matches!(v, V::List(_) | V::Str(_) | V::Map(_) | V::Range(..) | V::Undefined(_)),
        "callable" => matches!(v, V::Undefined(_) | V::Function(_) | V::Method(_) | V::Macro(_)),
        "odd" | "even" => {
            let rest = match v {
                V::Float(f) => f.rem_euclid(2.0),
                _ => int(v)?.rem_euclid(2) as f64,
            };
            rest == if name == "odd" { 1.0 } else { 0.0 }
        }
        "divisibleby" => match (v.as_float(), int(arg(0)?)?) {
            (_, 0) => return bad("division by zero"),
            (Some(x), d) if matches!(v, V::Float(_)) => x % d as f64 == 0.0,
            (_, d) => int(v)?.checked_rem(d) == Some(0),
        },
        "eq" | "equalto" | "==" => ops::equal(e, v, arg(0)?)?,
        "ne" | "!=" => !ops::equal(e, v, arg(0)?)?,
        "lt" | "lessthan" | "<" => ops::compare(e, v, arg(0)?)? == Less,
        "le" | "<=" => ops::compare(e, v, arg(0)?)? != Greater,
        "gt" | "greaterthan" | ">" => ops::compare(e, v, arg(0)?)? == Greater,
        "ge" | ">=" => ops::compare(e, v, arg(0)?)? != Less,
        "in" => ops::contains(e, arg(0)?, v)?,
        "sameas" => match (v, arg(0)?) {
            (V::List(a), V::List(b)) => std::rc::Rc::ptr_eq(a, b),
            (V::Map(a), V::Map(b)) => std::rc::Rc::ptr_eq(a, b),
            (a, b) => a.type_name() == b.type_name() && ops::equal(e, a, b)?,
        },
        "upper" => text(e, v, |s| s.chars().any(char::is_alphabetic) && !s.chars().any(char::is_lowercase))?,
        "lower" => text(e, v, |s| s.chars().any(char::is_alphabetic) && !s.chars().any(char::is_uppercase))?,
        "escaped" => v.is_safe(),
        "filter" | "test" => {
            ops::hashable(v)?;
            v.as_str().is_some_and(|s| if name == "test" { NAMES.contains(&s) } else { super::filters::known(s) })
        }
        _ => return bad(format!("no test named '{name}'")),
    })
}

fn text(e: &mut Eval, v: &V, f: impl Fn(&str) -> bool) -> Res<bool> {
    Ok(f(&super::pytext::str_of(e, v)?))
}

const NAMES: &[&str] = &[
    "!=",
    "<",
    "<=",
    "==",
    ">",
    ">=",
    "boolean",
    "callable",
    "defined",
    "divisibleby",
    "eq",
    "equalto",
    "escaped",
    "even",
    "false",
    "filter",
    "float",
    "ge",
    "greaterthan",
    "gt",
    "in",
    "integer",
    "iterable",
    "le",
    "lessthan",
    "lower",
    "lt",
    "mapping",
    "ne",
    "none",
    "number",
    "odd",
    "sameas",
    "sequence",
    "string",
    "test",
    "true",
    "undefined",
    "upper",
];
