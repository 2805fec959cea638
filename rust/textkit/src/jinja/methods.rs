//! Methods of mappings, lists and loops, as in Python. What would change a value is refused.

use super::eval::{Eval, LoopState};
use super::ops;
use super::textmethods;
use super::value::*;

const MAP: &[&str] = &["keys", "values", "items", "get", "copy", "update", "pop", "popitem", "clear", "setdefault"];
const LIST: &[&str] = &["index", "count", "copy", "append", "extend", "insert", "pop", "remove", "clear", "reverse", "sort"];
const LOOP: &[&str] = &["cycle", "changed"];

pub fn find(v: &V, name: &str) -> Option<&'static str> {
    let table = match v {
        V::Str(_) => textmethods::NAMES,
        V::Map(_) => MAP,
        V::List(_) => LIST,
        V::Loop(_) => LOOP,
        _ => return None,
    };
    table.iter().find(|m| **m == name).copied()
}

pub fn call(e: &mut Eval, v: &V, name: &str, args: Vec<V>, kwargs: Vec<(String, V)>) -> Res<V> {
    match v {
        V::Str(t) => textmethods::call(e, t, name, args, kwargs),
        V::Map(m) => of_map(e, v, m, name, &args, &kwargs),
        V::List(l) => of_list(e, v, l, name, &args),
        V::Loop(l) => of_loop(e, l, name, args),
        _ => bad(format!("no method named '{name}'")),
    }
}

fn of_map(e: &mut Eval, v: &V, m: &Map, name: &str, args: &[V], kwargs: &[(String, V)]) -> Res<V> {
    match name {
        "keys" => pairs(e, m, |p| Ok(p.0.clone())),
        "values" => pairs(e, m, |p| Ok(p.1.clone())),
        "items" => pairs(e, m, |p| V::tuple(vec![p.0.clone(), p.1.clone()])),
        "copy" => Ok(v.clone()),
        "get" => {
            let key = args.first().ok_or_else(|| Fault::Bad("get expected at least 1 argument".into()))?;
            m.charge(e, key)?;
            let default = args.get(1).cloned().or_else(|| kwarg(kwargs, "default")).unwrap_or(V::None);
            Ok(m.get_value(key).cloned().unwrap_or(default))
        }
        _ => bad(format!("'{name}' would change the mapping, which a template may not")),
    }
}

fn of_list(e: &mut Eval, v: &V, l: &List, name: &str, args: &[V]) -> Res<V> {
    match name {
        "copy" => Ok(v.clone()),
        "index" | "count" => {
            let wanted = args.first().ok_or_else(|| Fault::Bad(format!("{name} expected 1 argument")))?;
            let mut n = 0;
            for (i, item) in l.items.iter().enumerate() {
                if ops::equal(e, item, wanted)? {
                    if name == "index" {
                        return Ok(V::Int(i as i128));
                    }
                    n += 1;
                }
            }
            if name == "index" {
                bad("the value is not in the list")
            } else {
                Ok(V::Int(n))
            }
        }
        _ => bad(format!("'{name}' would change the list, which a template may not")),
    }
}

fn of_loop(e: &mut Eval, l: &LoopState, name: &str, args: Vec<V>) -> Res<V> {
    match name {
        "cycle" if !args.is_empty() => Ok(args[l.index0.get() % args.len()].clone()),
        "changed" => {
            let before = l.changed.borrow_mut().take();
            let same = match &before {
                Some(b) if b.len() == args.len() => {
                    let mut same = true;
                    for (x, y) in b.iter().zip(&args) {
                        same = same && ops::equal(e, x, y)?;
                    }
                    same
                }
                _ => false,
            };
            if args.iter().any(V::holds_namespace) {
                return bad("loop.changed cannot compare namespaces");
            }
            *l.changed.borrow_mut() = Some(args);
            Ok(V::Bool(!same))
        }
        _ => bad("no items for cycling given"),
    }
}

fn pairs(e: &mut Eval, m: &Map, f: impl Fn(&(V, V)) -> Res<V>) -> Res<V> {
    e.reserve(m.entries.len() * 128)?;
    V::list(m.entries.iter().map(f).collect::<Res<Vec<_>>>()?)
}

pub fn kwarg(kwargs: &[(String, V)], name: &str) -> Option<V> {
    kwargs.iter().find(|k| k.0 == name).map(|k| k.1.clone())
}
