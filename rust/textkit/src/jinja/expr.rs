//! Expressions.

use std::rc::Rc;

use minijinja::machinery::ast::{self, BinOpKind, CompareOpKind, Expr, UnaryOpKind};

use super::arithmetic;
use super::eval::Eval;
use super::ops;
use super::value::*;

pub fn evaluate(e: &mut Eval, expr: &Expr<'static>) -> Res<V> {
    match expr {
        Expr::Var(v) => e.lookup(v.id),
        Expr::Const(c) => constant(e, &c.value),
        Expr::List(l) => {
            let items = all(e, &l.items)?;
            V::list(items)
        }
        Expr::Tuple(t) => {
            let items = all(e, &t.items)?;
            V::tuple(items)
        }
        Expr::Map(m) => map(e, m),
        Expr::Slice(s) => slice(e, s),
        Expr::UnaryOp(u) => {
            let v = e.expr(&u.expr)?;
            match u.op {
                UnaryOpKind::Not => Ok(V::Bool(!v.truthy())),
                UnaryOpKind::Neg => arithmetic::neg(&v),
            }
        }
        Expr::BinOp(b) => {
            let left = e.expr(&b.left)?;
            match b.op {
                BinOpKind::ScAnd if !left.truthy() => return Ok(left),
                BinOpKind::ScOr if left.truthy() => return Ok(left),
                _ => {}
            }
            let right = e.expr(&b.right)?;
            binary(e, b.op, left, right)
        }
        Expr::Compare(c) => comparisons(e, c),
        Expr::IfExpr(i) => inline_if(e, i),
        Expr::Filter(f) => {
            let Some(inner) = &f.expr else { return bad("a filter without input") };
            let v = e.expr(inner)?;
            let (args, kwargs) = e.call_args(&f.args)?;
            super::filters::apply(e, f.name, v, args, kwargs)
        }
        Expr::Test(t) => {
            let v = e.expr(&t.expr)?;
            let (args, _) = e.call_args(&t.args)?;
            Ok(V::Bool(super::tests::check(e, t.name, &v, &args)?))
        }
        Expr::GetAttr(a) => {
            let v = e.expr(&a.expr)?;
            get_attr(&v, a.name)
        }
        Expr::GetItem(i) => {
            let v = e.expr(&i.expr)?;
            let key = e.expr(&i.subscript_expr)?;
            get_item(e, &v, &key)
        }
        Expr::Call(c) => e.call_expr(c, None),
    }
}

fn map(e: &mut Eval, m: &ast::Map<'static>) -> Res<V> {
    e.reserve(m.keys.len() * 128)?;
    let mut pairs = Vec::with_capacity(m.keys.len());
    for (k, v) in m.keys.iter().zip(&m.values) {
        pairs.push((e.expr(k)?, e.expr(v)?));
    }
    V::map(pairs)
}

fn slice(e: &mut Eval, s: &ast::Slice<'static>) -> Res<V> {
    let v = e.expr(&s.expr)?;
    let mut bound = |x: &Option<Expr<'static>>| x.as_ref().map_or(Ok(V::None), |x| e.expr(x));
    let (start, stop, step) = (bound(&s.start)?, bound(&s.stop)?, bound(&s.step)?);
    ops::slice(e, &v, &start, &stop, &step)
}

fn inline_if(e: &mut Eval, i: &ast::IfExpr<'static>) -> Res<V> {
    if e.expr(&i.test_expr)?.truthy() {
        return e.expr(&i.true_expr);
    }
    match &i.false_expr {
        Some(x) => e.expr(x),
        None => Ok(V::undefined("the inline if-expression")),
    }
}

/// `a < b <= c`: ends at the first that does not hold, and evaluates no operand twice.
fn comparisons(e: &mut Eval, c: &ast::Compare<'static>) -> Res<V> {
    let mut left = e.expr(&c.expr)?;
    for op in &c.ops {
        let right = e.expr(&op.expr)?;
        if !compare(e, op.op, &left, &right)? {
            return Ok(V::Bool(false));
        }
        left = right;
    }
    Ok(V::Bool(true))
}

fn all(e: &mut Eval, exprs: &[Expr<'static>]) -> Res<Vec<V>> {
    e.reserve(exprs.len() * 32)?;
    exprs.iter().map(|x| e.expr(x)).collect()
}

fn constant(e: &mut Eval, v: &minijinja::Value) -> Res<V> {
    use minijinja::value::ValueKind;
    Ok(match v.kind() {
        ValueKind::None => V::None,
        ValueKind::Bool => V::Bool(v.is_true()),
        ValueKind::Number => match i128::try_from(v.clone()) {
            Ok(i) if v.is_integer() => V::Int(i),
            _ => V::Float(f64::try_from(v.clone()).map_err(|_| Fault::Bad("bad number".into()))?),
        },
        ValueKind::String => return e.text(v.as_str().unwrap_or_default()),
        ValueKind::Undefined => V::undefined("undefined"),
        kind => return bad(format!("unexpected constant of kind {kind}")),
    })
}

fn binary(e: &mut Eval, op: BinOpKind, a: V, b: V) -> Res<V> {
    use std::cmp::Ordering::*;
    Ok(match op {
        BinOpKind::ScAnd | BinOpKind::ScOr => b,
        BinOpKind::Add => arithmetic::add(e, &a, &b)?,
        BinOpKind::Sub => arithmetic::sub(&a, &b)?,
        BinOpKind::Mul => arithmetic::mul(e, &a, &b)?,
        BinOpKind::Div => arithmetic::div(&a, &b)?,
        BinOpKind::FloorDiv => arithmetic::floor_div(&a, &b)?,
        BinOpKind::Rem => arithmetic::rem(e, &a, &b)?,
        BinOpKind::Pow => arithmetic::pow(&a, &b)?,
        BinOpKind::Concat => ops::concat(e, &a, &b)?,
        BinOpKind::Eq => V::Bool(ops::equal(e, &a, &b)?),
        BinOpKind::Ne => V::Bool(!ops::equal(e, &a, &b)?),
        BinOpKind::Lt => V::Bool(ops::compare(e, &a, &b)? == Less),
        BinOpKind::Lte => V::Bool(ops::compare(e, &a, &b)? != Greater),
        BinOpKind::Gt => V::Bool(ops::compare(e, &a, &b)? == Greater),
        BinOpKind::Gte => V::Bool(ops::compare(e, &a, &b)? != Less),
        BinOpKind::In => V::Bool(ops::contains(e, &b, &a)?),
    })
}

fn compare(e: &mut Eval, op: CompareOpKind, a: &V, b: &V) -> Res<bool> {
    use std::cmp::Ordering::*;
    Ok(match op {
        CompareOpKind::Eq => ops::equal(e, a, b)?,
        CompareOpKind::Ne => !ops::equal(e, a, b)?,
        CompareOpKind::Lt => ops::compare(e, a, b)? == Less,
        CompareOpKind::Lte => ops::compare(e, a, b)? != Greater,
        CompareOpKind::Gt => ops::compare(e, a, b)? == Greater,
        CompareOpKind::Gte => ops::compare(e, a, b)? != Less,
        CompareOpKind::In => ops::contains(e, b, a)?,
        CompareOpKind::NotIn => !ops::contains(e, b, a)?,
    })
}

/// `v.name`: Python's attribute first (methods), then the item of that name.
pub fn get_attr(v: &V, name: &str) -> Res<V> {
    if let Some(method) = super::methods::find(v, name) {
        return Ok(V::Method(Rc::new((v.clone(), method))));
    }
    match v {
        V::Map(m) => Ok(m.get(name).cloned().unwrap_or_else(|| V::undefined(name))),
        V::Namespace(ns) => {
            let found = ns.attrs.borrow().iter().find(|a| a.0 == name).map(|a| a.1.clone());
            Ok(found.unwrap_or_else(|| V::undefined(name)))
        }
        V::Loop(l) => loop_attr(l, name),
        V::Undefined(owner) => bad(format!("'{owner}' is undefined (looking for '{name}')")),
        V::Macro(m) if name == "name" => Ok(V::str(m.name.as_str())),
        _ => Ok(V::undefined(name)),
    }
}

fn loop_attr(l: &super::eval::LoopState, name: &str) -> Res<V> {
    let (i, n) = (l.index0.get() as i128, l.items.len() as i128);
    Ok(match name {
        "index" => V::Int(i + 1),
        "index0" => V::Int(i),
        "revindex" => V::Int(n - i),
        "revindex0" => V::Int(n - i - 1),
        "first" => V::Bool(i == 0),
        "last" => V::Bool(i + 1 == n),
        "length" => V::Int(n),
        "depth" => V::Int(l.depth0 as i128 + 1),
        "depth0" => V::Int(l.depth0 as i128),
        "previtem" if i > 0 => l.items[i as usize - 1].clone(),
        "nextitem" if i + 1 < n => l.items[i as usize + 1].clone(),
        _ => V::undefined(name),
    })
}

/// `v[key]`: the item first, then the attribute.
pub fn get_item(e: &mut Eval, v: &V, key: &V) -> Res<V> {
    match v {
        V::Map(m) => {
            m.charge(e, key)?;
            if let Some(found) = m.get_value(key) {
                return Ok(found.clone());
            }
        }
        V::List(l) => {
            if let Some(i) = key.as_int() {
                let at = if i < 0 { i + l.items.len() as i128 } else { i };
                let found = usize::try_from(at).ok().and_then(|at| l.items.get(at).cloned());
                return Ok(found.unwrap_or_else(|| V::undefined("list item")));
            }
        }
        V::Str(t) => {
            if let Some(i) = key.as_int() {
                e.scan_step(t.s.len())?;
                let n = if i < 0 { t.s.chars().count() as i128 } else { 0 };
                let found = usize::try_from(i + n).ok().and_then(|at| t.s.chars().nth(at));
                return Ok(found.map_or_else(|| V::undefined("string item"), |c| V::str(c.to_string())));
            }
        }
        V::Range(start, stop, step) => {
            if let Some(i) = key.as_int() {
                let n = range_len(*start, *stop, *step) as i128;
                let at = if i < 0 { i.saturating_add(n) } else { i };
                if at < 0 || at >= n {
                    return Ok(V::undefined("range item"));
                }
                return Ok(V::Int(*start as i128 + at * *step as i128));
            }
        }
        V::Undefined(name) => return bad(format!("'{name}' is undefined")),
        _ => {}
    }
    match key {
        V::Str(t) => get_attr(v, &t.s),
        V::Int(i) => Ok(V::undefined(&format!("item {i}"))),
        _ => Ok(V::undefined("item")),
    }
}
