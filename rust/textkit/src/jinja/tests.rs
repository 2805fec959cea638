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
        "callable" => matches!(v, V::Function(_) | V::Method(_) | V::Macro(_)),
        "odd" => int(v)?.rem_euclid(2) == 1,
        "even" => int(v)?.rem_euclid(2) == 0,
        "divisibleby" => match int(arg(0)?)? {
            0 => return bad("division by zero"),
            d => int(v)? % d == 0,
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
        "upper" => text(v, |s| s.chars().any(char::is_alphabetic) && !s.chars().any(char::is_lowercase)),
        "lower" => text(v, |s| s.chars().any(char::is_alphabetic) && !s.chars().any(char::is_uppercase)),
        "escaped" => v.is_safe(),
        "filter" => v.as_str().is_some_and(|s| super::filters::known(s)),
        "test" => false,
        _ => return bad(format!("no test named '{name}'")),
    })
}

fn text(v: &V, f: impl Fn(&str) -> bool) -> bool {
    v.as_str().is_some_and(f)
}
