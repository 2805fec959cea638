//! Operators of numbers, and what they do to strings and lists, as in Python.

use super::eval::Eval;
use super::ops::{escape_arg, escaped, undefined_error};
use super::value::*;

fn type_error<T>(op: &str, a: &V, b: &V) -> Res<T> {
    undefined_error(a)?;
    undefined_error(b)?;
    bad(format!("unsupported operand type(s) for {op}: '{}' and '{}'", a.type_name(), b.type_name()))
}

fn checked<T>(v: Option<T>) -> Res<T> {
    v.ok_or_else(|| Fault::Bad("integer is too large".into()))
}

pub fn add(e: &mut Eval, a: &V, b: &V) -> Res<V> {
    match (a, b) {
        (V::Str(x), V::Str(y)) if x.safe || y.safe => {
            let (left, right) = (escaped(e, a)?, escaped(e, b)?);
            e.join_text(&[&left, &right])?.marked_safe()
        }
        (V::Str(x), V::Str(y)) => e.join_text(&[&x.s, &y.s]),
        (V::List(x), V::List(y)) if x.tuple == y.tuple => {
            e.reserve((x.items.len() + y.items.len()) * 32)?;
            let items: Vec<V> = x.items.iter().chain(&y.items).cloned().collect();
            if x.tuple {
                V::tuple(items)
            } else {
                V::list(items)
            }
        }
        _ => arithmetic("+", a, b, |x, y| x.checked_add(y), |x, y| x + y),
    }
}

fn arithmetic(op: &str, a: &V, b: &V, int: impl Fn(i128, i128) -> Option<i128>, float: impl Fn(f64, f64) -> f64) -> Res<V> {
    if let (Some(x), Some(y)) = (a.as_int(), b.as_int()) {
        return Ok(V::Int(checked(int(x, y))?));
    }
    match (a.as_float(), b.as_float()) {
        (Some(x), Some(y)) => Ok(V::Float(float(x, y))),
        _ => type_error(op, a, b),
    }
}

pub fn sub(a: &V, b: &V) -> Res<V> {
    arithmetic("-", a, b, |x, y| x.checked_sub(y), |x, y| x - y)
}

pub fn mul(e: &mut Eval, a: &V, b: &V) -> Res<V> {
    let (v, n) = match (a, b) {
        (V::Str(_) | V::List(_), _) => (a, b.as_int()),
        (_, V::Str(_) | V::List(_)) => (b, a.as_int()),
        _ => return arithmetic("*", a, b, |x, y| x.checked_mul(y), |x, y| x * y),
    };
    let Some(n) = n else { return type_error("*", a, b) };
    let n = usize::try_from(n.max(0)).unwrap_or(usize::MAX);
    match v {
        V::Str(t) => {
            e.reserve(t.s.len().saturating_mul(n))?;
            let text = t.s.repeat(n);
            Ok(if t.safe { V::markup(text) } else { V::str(text) })
        }
        V::List(l) => {
            e.reserve(l.items.len().saturating_mul(n).saturating_mul(32))?;
            let mut items = Vec::with_capacity(l.items.len() * n);
            for _ in 0..n {
                if l.items.is_empty() {
                    break;
                }
                items.extend(l.items.iter().cloned());
            }
            if l.tuple {
                V::tuple(items)
            } else {
                V::list(items)
            }
        }
        _ => unreachable!(),
    }
}

pub fn div(a: &V, b: &V) -> Res<V> {
    match (a.as_float(), b.as_float()) {
        (Some(_), Some(0.0)) => bad("division by zero"),
        (Some(x), Some(y)) => Ok(V::Float(x / y)),
        _ => type_error("/", a, b),
    }
}

/// As Python's float.__mod__: the sign is the divisor's.
fn float_rem(x: f64, y: f64) -> f64 {
    let r = x % y;
    if r != 0.0 && (r < 0.0) != (y < 0.0) {
        r + y
    } else if r == 0.0 {
        0.0f64.copysign(y)
    } else {
        r
    }
}

/// As Python's float.__floordiv__: from the exact remainder, so that 1 // 0.1 is 9.
fn float_floor_div(x: f64, y: f64) -> f64 {
    let exact = (x - float_rem(x, y)) / y;
    let floor = exact.floor();
    if exact - floor > 0.5 {
        floor + 1.0
    } else {
        floor
    }
}

pub fn floor_div(a: &V, b: &V) -> Res<V> {
    if matches!(b.as_float(), Some(0.0)) && a.as_float().is_some() {
        return bad("integer division or modulo by zero");
    }
    arithmetic(
        "//",
        a,
        b,
        |x, y| {
            let quotient = x.checked_div(y)?;
            Some(if x % y != 0 && (x < 0) != (y < 0) { quotient - 1 } else { quotient })
        },
        float_floor_div,
    )
}

pub fn rem(e: &mut Eval, a: &V, b: &V) -> Res<V> {
    if let V::Str(t) = a {
        let args = match b {
            V::List(l) if l.tuple => l.items.clone(),
            other => vec![other.clone()],
        };
        if t.safe {
            let args = args.iter().map(|v| escape_arg(e, v)).collect::<Res<Vec<_>>>()?;
            return super::format::percent_format(e, &t.s, &args, b)?.marked_safe();
        }
        return super::format::percent_format(e, &t.s, &args, b);
    }
    if matches!(b.as_float(), Some(0.0)) && a.as_float().is_some() {
        return bad("integer division or modulo by zero");
    }
    arithmetic(
        "%",
        a,
        b,
        |x, y| {
            let r = x.checked_rem(y)?;
            Some(if r != 0 && (r < 0) != (y < 0) { r + y } else { r })
        },
        float_rem,
    )
}

pub fn pow(a: &V, b: &V) -> Res<V> {
    if let (Some(x), Some(y)) = (a.as_int(), b.as_int()) {
        if y >= 0 {
            let y = u32::try_from(y).map_err(|_| Fault::Bad("exponent is too large".into()))?;
            return Ok(V::Int(checked(x.checked_pow(y))?));
        }
    }
    match (a.as_float(), b.as_float()) {
        (Some(x), Some(y)) => Ok(V::Float(x.powf(y))),
        _ => type_error("**", a, b),
    }
}

pub fn neg(v: &V) -> Res<V> {
    match v {
        V::Float(f) => Ok(V::Float(-f)),
        _ => match v.as_int() {
            Some(i) => Ok(V::Int(checked(i.checked_neg())?)),
            None => {
                undefined_error(v)?;
                bad(format!("bad operand type for unary -: '{}'", v.type_name()))
            }
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn float(r: Res<V>) -> f64 {
        r.ok().and_then(|v| v.as_float()).expect("a number")
    }

    #[test]
    fn division_is_pythons() {
        assert_eq!(float(floor_div(&V::Float(1.0), &V::Float(0.1))), 9.0);
        assert_eq!(float(floor_div(&V::Float(-7.0), &V::Float(2.0))), -4.0);
        for (x, y, quotient) in [(7, 2, 3), (-7, 2, -4), (7, -2, -4), (-7, -2, 3), (6, -3, -2)] {
            assert_eq!(float(floor_div(&V::Int(x), &V::Int(y))), quotient as f64, "{x} // {y}");
        }
        assert!(floor_div(&V::Int(i128::MIN), &V::Int(-1)).is_err(), "no such integer");
        assert!(floor_div(&V::Int(1), &V::Int(0)).is_err());
    }
}
