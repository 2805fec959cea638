//! Filters over sequences.

use super::arithmetic;
use super::eval::Eval;
use super::limits::MAX_CHUNKS;
use super::methods::kwarg;
use super::ops;
use super::value::*;
use std::cmp::Ordering;

/// An item's attribute as `attribute=` names it: "a.b", or an integer index.
pub fn attribute(e: &mut Eval, v: &V, path: &V) -> Res<V> {
    match path {
        V::Str(t) => {
            let mut at = v.clone();
            for part in t.s.split('.') {
                let key = part.parse::<i128>().map_or_else(|_| V::str(part), V::Int);
                at = super::expr::get_item(e, &at, &key)?;
            }
            Ok(at)
        }
        other => super::expr::get_item(e, v, other),
    }
}

/// A merge sort that can fail: the comparison counts steps and may meet values without an order.
fn sort_by(e: &mut Eval, items: &mut Vec<(V, V)>, cmp: &dyn Fn(&mut Eval, &V, &V) -> Res<Ordering>) -> Res<()> {
    let mut failure = None;
    let mut sorted = std::mem::take(items);
    sorted.sort_by(|a, b| {
        if failure.is_some() {
            return Ordering::Equal;
        }
        cmp(e, &a.0, &b.0).unwrap_or_else(|f| {
            failure = Some(f);
            Ordering::Equal
        })
    });
    *items = sorted;
    failure.map_or(Ok(()), Err)
}

fn fold_case(e: &mut Eval, v: &V, case_sensitive: bool) -> Res<V> {
    match v {
        V::Str(t) if !case_sensitive => {
            e.chars_step(t.s.len())?;
            e.text(t.s.to_lowercase())
        }
        _ => Ok(v.clone()),
    }
}

/// Items with their sort keys.
fn keyed(e: &mut Eval, v: &V, path: Option<V>, case_sensitive: bool) -> Res<Vec<(V, V)>> {
    let items = e.iterate(v)?;
    let mut out = Vec::with_capacity(items.len());
    for item in items {
        e.fits(0)?;
        let key = match &path {
            Some(p) => attribute(e, &item, p)?,
            None => item.clone(),
        };
        out.push((fold_case(e, &key, case_sensitive)?, item));
    }
    Ok(out)
}

pub fn apply(e: &mut Eval, name: &str, v: V, args: Vec<V>, kwargs: Vec<(String, V)>) -> Res<V> {
    let get = |i: usize, key: &str| args.get(i).cloned().or_else(|| kwarg(&kwargs, key));
    let flag = |i: usize, key: &str| get(i, key).is_some_and(|v| v.truthy());
    match name {
        "map" => map(e, &v, &args, &kwargs),
        "select" | "reject" | "selectattr" | "rejectattr" => choose(e, name, &v, &args),
        "sort" => sort(e, &v, get(2, "attribute"), flag(1, "case_sensitive"), flag(0, "reverse")),
        "dictsort" => {
            let by_value = get(1, "by").is_some_and(|b| b.as_str() == Some("value"));
            dictsort(e, &v, by_value, flag(0, "case_sensitive"), flag(2, "reverse"))
        }
        "min" | "max" => {
            let items = keyed(e, &v, get(1, "attribute"), flag(0, "case_sensitive"))?;
            extreme(e, items, if name == "min" { Ordering::Less } else { Ordering::Greater })
        }
        "unique" => {
            let items = keyed(e, &v, get(1, "attribute"), flag(0, "case_sensitive"))?;
            unique(e, items)
        }
        "sum" => {
            let mut total = get(1, "start").unwrap_or(V::Int(0));
            for item in e.iterate(&v)? {
                let item = match get(0, "attribute") {
                    Some(p) => attribute(e, &item, &p)?,
                    None => item,
                };
                total = arithmetic::add(e, &total, &item)?;
            }
            Ok(total)
        }
        "groupby" => groupby(e, &v, &args, &kwargs),
        "batch" | "slice" => {
            let n = get(0, if name == "batch" { "linecount" } else { "slices" }).and_then(|n| n.as_int()).unwrap_or(0);
            let n = usize::try_from(n)
                .ok()
                .filter(|n| (1..=MAX_CHUNKS as usize).contains(n))
                .ok_or_else(|| Fault::Bad(format!("{name} needs a count")))?;
            chunks(e, &v, name == "batch", n, get(1, "fill_with").filter(|f| !matches!(f, V::None)))
        }
        _ => bad(format!("no filter named '{name}'")),
    }
}

fn sort(e: &mut Eval, v: &V, path: Option<V>, case_sensitive: bool, reverse: bool) -> Res<V> {
    let path = path.filter(|p| !matches!(p, V::None));
    let mut items = keyed(e, v, path, case_sensitive)?;
    // Python compares lists of keys, which asks for equality before order.
    let order = |e: &mut Eval, a: &V, b: &V| match ops::compare(e, a, b) {
        Err(Fault::Bad(m)) => {
            if ops::equal(e, a, b)? {
                Ok(Ordering::Equal)
            } else {
                bad(m)
            }
        }
        other => other,
    };
    sort_by(e, &mut items, &|e, a, b| order(e, a, b).map(|o| if reverse { o.reverse() } else { o }))?;
    V::list(items.into_iter().map(|p| p.1).collect())
}

fn dictsort(e: &mut Eval, v: &V, by_value: bool, case_sensitive: bool, reverse: bool) -> Res<V> {
    let V::Map(m) = v else { return bad("dictsort needs a mapping") };
    e.reserve(m.entries.len() * 128)?;
    let mut items = Vec::with_capacity(m.entries.len());
    for (k, x) in &m.entries {
        let key = fold_case(e, if by_value { x } else { k }, case_sensitive)?;
        items.push((key, V::tuple(vec![k.clone(), x.clone()])?));
    }
    sort_by(e, &mut items, &|e, a, b| ops::compare(e, a, b).map(|o| if reverse { o.reverse() } else { o }))?;
    V::list(items.into_iter().map(|p| p.1).collect())
}

/// The first item whose key stands `wanted` to all before it.
fn extreme(e: &mut Eval, items: Vec<(V, V)>, wanted: Ordering) -> Res<V> {
    let mut best: Option<(V, V)> = None;
    for item in items {
        let better = match &best {
            None => true,
            Some(b) => ops::compare(e, &item.0, &b.0)? == wanted,
        };
        if better {
            best = Some(item);
        }
    }
    Ok(best.map_or_else(|| V::undefined("the item of an empty sequence"), |b| b.1))
}

fn unique(e: &mut Eval, items: Vec<(V, V)>) -> Res<V> {
    let mut kept: Vec<(V, V)> = Vec::new();
    'items: for item in items {
        ops::hashable(&item.0)?;
        for k in &kept {
            if ops::equal(e, &k.0, &item.0)? {
                continue 'items;
            }
        }
        kept.push(item);
    }
    V::list(kept.into_iter().map(|p| p.1).collect())
}

fn map(e: &mut Eval, v: &V, args: &[V], kwargs: &[(String, V)]) -> Res<V> {
    // Jinja asks for truth first, so that none and 0 are empty here.
    if !v.truthy() {
        return V::list(Vec::new());
    }
    let items = e.iterate(v)?;
    let mut out = Vec::with_capacity(items.len());
    let path = kwarg(kwargs, "attribute");
    let default = kwarg(kwargs, "default");
    for item in items {
        e.step(1)?;
        out.push(match (&path, args.first()) {
            (Some(p), _) => {
                let found = attribute(e, &item, p)?;
                if found.is_undefined() {
                    default.clone().unwrap_or(found)
                } else {
                    found
                }
            }
            (None, Some(V::Str(filter))) => super::filters::apply(e, &filter.s, item, args[1..].to_vec(), kwargs.to_vec())?,
            _ => return bad("map requires a filter argument"),
        });
    }
    V::list(out)
}

fn choose(e: &mut Eval, name: &str, v: &V, args: &[V]) -> Res<V> {
    if !v.truthy() {
        return V::list(Vec::new());
    }
    let by_attribute = name.ends_with("attr");
    let wanted = name.starts_with("select");
    let (path, rest) = match (by_attribute, args) {
        (true, [path, rest @ ..]) => (Some(path), rest),
        (true, []) => return bad(format!("{name} requires an attribute")),
        (false, rest) => (None, rest),
    };
    let mut out = Vec::new();
    for item in e.iterate(v)? {
        e.step(1)?;
        let subject = match path {
            Some(p) => attribute(e, &item, p)?,
            None => item.clone(),
        };
        let yes = match rest {
            [V::Str(test), more @ ..] => super::tests::check(e, &test.s, &subject, more)?,
            [] => subject.truthy(),
            _ => return bad(format!("{name}: the test must be a name")),
        };
        if yes == wanted {
            out.push(item);
        }
    }
    V::list(out)
}

fn groupby(e: &mut Eval, v: &V, args: &[V], kwargs: &[(String, V)]) -> Res<V> {
    let path = args.first().cloned().or_else(|| kwarg(kwargs, "attribute"));
    let mut items = keyed(e, v, path, false)?;
    sort_by(e, &mut items, &|e, a, b| ops::compare(e, a, b))?;
    let mut groups: Vec<(V, Vec<V>)> = Vec::new();
    for (key, item) in items {
        match groups.last_mut() {
            Some(last) if ops::equal(e, &last.0, &key)? => last.1.push(item),
            _ => groups.push((key, vec![item])),
        }
    }
    let groups = groups.into_iter().map(|(k, list)| V::tuple(vec![k, V::list(list)?])).collect::<Res<Vec<_>>>()?;
    V::list(groups)
}

fn chunks(e: &mut Eval, v: &V, batch: bool, n: usize, fill: Option<V>) -> Res<V> {
    let items = e.iterate(v)?;
    e.reserve_values(items.len().saturating_add(n), 0)?;
    let mut out = Vec::new();
    if batch {
        for chunk in items.chunks(n) {
            let mut chunk = chunk.to_vec();
            while let (Some(f), true) = (&fill, chunk.len() < n) {
                chunk.push(f.clone());
            }
            out.push(V::list(chunk)?);
        }
    } else {
        let (each, extra) = (items.len() / n, items.len() % n);
        let mut at = 0;
        for i in 0..n {
            let take = each + usize::from(i < extra);
            let mut chunk = items[at..at + take].to_vec();
            at += take;
            if let (Some(f), true) = (&fill, i >= extra) {
                chunk.push(f.clone());
            }
            out.push(V::list(chunk)?);
        }
    }
    V::list(out)
}
