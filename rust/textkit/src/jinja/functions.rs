//! Global functions.

use std::cell::RefCell;
use std::rc::Rc;

use super::eval::Eval;
use super::value::*;

pub fn global(name: &str) -> Option<V> {
    const NAMES: [&str; 5] = ["range", "dict", "namespace", "raise_exception", "strftime_now"];
    NAMES.iter().find(|n| **n == name).map(|n| V::Function(n))
}

pub fn call(e: &mut Eval, name: &str, args: Vec<V>, kwargs: Vec<(String, V)>) -> Res<V> {
    match name {
        "range" => range(&args),
        "dict" => {
            let mut pairs = Vec::new();
            if let Some(V::Map(m)) = args.first() {
                e.reserve(m.entries.len() * 128)?;
                pairs.extend(m.entries.iter().cloned());
            }
            pairs.extend(kwargs.into_iter().map(|(k, v)| (V::str(k), v)));
            V::map(pairs)
        }
        "namespace" => {
            let mut attrs: Vec<(String, V)> = Vec::new();
            if let Some(V::Map(m)) = args.first() {
                for (k, v) in &m.entries {
                    attrs.push((k.as_str().unwrap_or_default().to_string(), v.clone()));
                }
            }
            attrs.extend(kwargs);
            if attrs.iter().any(|a| a.1.holds_namespace()) {
                return bad("a namespace cannot hold a namespace");
            }
            Ok(V::Namespace(Rc::new(Namespace { attrs: RefCell::new(attrs) })))
        }
        "raise_exception" => {
            let message = args.first().cloned().unwrap_or(V::None);
            let message = super::pytext::str_of(e, &message)?;
            bad(message.chars().take(2000).collect::<String>())
        }
        "strftime_now" => {
            let format = args.first().and_then(|v| v.as_str()).ok_or_else(|| Fault::Bad("strftime_now needs a format".into()))?;
            e.step(format.len() as u64)?;
            e.text(super::strftime::strftime(format, e.unix_seconds))
        }
        _ => bad(format!("no function named '{name}'")),
    }
}

fn range(args: &[V]) -> Res<V> {
    let int = |v: &V| {
        let i = v.as_int().ok_or_else(|| Fault::Bad("range() needs integers".into()))?;
        i64::try_from(i).map_err(|_| Fault::Bad("range() is too large".into()))
    };
    match args {
        [stop] => Ok(V::Range(0, int(stop)?, 1)),
        [start, stop] => Ok(V::Range(int(start)?, int(stop)?, 1)),
        [start, stop, step] => match int(step)? {
            0 => bad("range() arg 3 must not be zero"),
            step => Ok(V::Range(int(start)?, int(stop)?, step)),
        },
        _ => bad("range() takes 1 to 3 arguments"),
    }
}
