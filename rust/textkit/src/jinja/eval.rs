//! Statements of a template, run over minijinja's syntax tree, with limits on steps, depth, memory and output.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use minijinja::machinery::ast::{self, Expr, Stmt};

use super::limits::*;
use super::value::*;

/// A scope: names bound here, then the enclosing one.
pub struct Env {
    vars: RefCell<Vec<(String, V)>>,
    parent: Option<Rc<Env>>,
}

impl Env {
    pub fn new(parent: Option<Rc<Env>>) -> Rc<Env> {
        Rc::new(Env { vars: RefCell::new(Vec::new()), parent })
    }

    /// Says how many names were compared.
    pub fn set(&self, name: &str, value: V) -> usize {
        let mut vars = self.vars.borrow_mut();
        match vars.iter_mut().find(|v| v.0 == name) {
            Some(v) => v.1 = value,
            None => vars.push((name.to_string(), value)),
        }
        vars.len()
    }

    /// The value, and how many names and scopes were looked at.
    fn get(&self, name: &str) -> (Option<V>, usize) {
        let mut env = self;
        let mut seen = 0;
        loop {
            let vars = env.vars.borrow();
            seen += vars.len() + 1;
            if let Some(v) = vars.iter().find(|v| v.0 == name) {
                return (Some(v.1.clone()), seen);
            }
            match env.parent.as_deref() {
                Some(parent) => env = parent,
                None => return (None, seen),
            }
        }
    }
}

/// The `loop` variable.
pub struct LoopState {
    pub items: Vec<V>,
    pub index0: Cell<usize>,
    pub depth0: usize,
    pub changed: RefCell<Option<Vec<V>>>,
    pub body: *const ast::ForLoop<'static>,
    pub env: Rc<Env>,
}

pub enum Flow {
    Next,
    Break,
    Continue,
}

pub struct Eval {
    pub limits: Limits,
    pub(super) steps: u64,
    pub(super) depth: u32,
    pub env: Rc<Env>,
    pub out: String,
    pub(super) buffered: usize,
    pub unix_seconds: i64,
    /// Scopes that macros hold on to; emptied at the end, because a scope that holds a macro that holds it is a cycle.
    captured: Vec<Rc<Env>>,
}

/// Restores the nesting depth on every way out.
macro_rules! nested {
    ($self:ident, $body:expr) => {{
        $self.depth += 1;
        if $self.depth > $self.limits.depth {
            $self.depth -= 1;
            return Err(Fault::Limit(format!("the template nests more than {} levels deep", $self.limits.depth)));
        }
        let result = $body;
        $self.depth -= 1;
        result
    }};
}
pub(super) use nested;

impl Eval {
    pub fn new(limits: Limits, root: Vec<(V, V)>, unix_seconds: i64) -> Eval {
        let env = Env::new(None);
        for (k, v) in root {
            if let V::Str(name) = &k {
                env.set(&name.s, v);
            }
        }
        let env = Env::new(Some(env));
        Eval { limits, steps: 0, depth: 0, env, out: String::new(), buffered: 0, unix_seconds, captured: Vec::new() }
    }

    pub fn run(&mut self, children: &[Stmt<'static>]) -> Res<String> {
        let result = self.body(children);
        for env in self.captured.drain(..) {
            env.vars.borrow_mut().clear();
        }
        match result? {
            Flow::Next => Ok(std::mem::take(&mut self.out)),
            _ => bad("'break' or 'continue' outside of a loop"),
        }
    }

    pub fn join_text(&mut self, parts: &[&str]) -> Res<V> {
        let total = parts.iter().fold(0usize, |n, p| n.saturating_add(p.len()));
        self.reserve(total)?;
        Ok(V::str(parts.concat()))
    }

    pub fn text(&mut self, s: impl Into<Box<str>>) -> Res<V> {
        let s: Box<str> = s.into();
        self.reserve(s.len())?;
        Ok(V::str(s))
    }

    fn emit(&mut self, s: &str) -> Res<()> {
        self.bytes_step(s.len())?;
        if self.out.len() + s.len() > self.limits.output {
            return Err(Fault::Limit(format!("the template writes more than {} bytes", self.limits.output)));
        }
        self.buffered += s.len();
        self.fits(0)?;
        self.out.push_str(s);
        Ok(())
    }

    fn emit_value(&mut self, v: &V) -> Res<()> {
        let text = super::pytext::str_of(self, v)?;
        self.emit(&text)
    }

    pub fn lookup(&mut self, name: &str) -> Res<V> {
        let (found, seen) = self.env.get(name);
        self.names_step(seen)?;
        Ok(found.or_else(|| super::functions::global(name)).unwrap_or_else(|| V::undefined(name)))
    }

    pub fn set_var(&mut self, name: &str, value: V) -> Res<()> {
        self.fits(0)?;
        let seen = self.env.set(name, value);
        self.names_step(seen)
    }

    /// Runs `f` in a scope of its own under `parent`.
    pub fn scoped<T>(&mut self, parent: Rc<Env>, f: impl FnOnce(&mut Eval) -> Res<T>) -> Res<T> {
        let saved = std::mem::replace(&mut self.env, Env::new(Some(parent)));
        let result = f(self);
        self.env = saved;
        result
    }

    /// The text that `f` writes.
    pub fn capture(&mut self, f: impl FnOnce(&mut Eval) -> Res<Flow>) -> Res<(String, Flow)> {
        let saved = std::mem::take(&mut self.out);
        let result = f(self);
        let text = std::mem::replace(&mut self.out, saved);
        self.buffered -= text.len().min(self.buffered);
        Ok((text, result?))
    }

    pub fn body(&mut self, stmts: &[Stmt<'static>]) -> Res<Flow> {
        nested!(self, {
            let mut flow = Ok(Flow::Next);
            for stmt in stmts {
                flow = self.stmt(stmt);
                if !matches!(flow, Ok(Flow::Next)) {
                    break;
                }
            }
            flow
        })
    }

    fn stmt(&mut self, stmt: &Stmt<'static>) -> Res<Flow> {
        self.step(1)?;
        match stmt {
            Stmt::EmitRaw(s) => self.emit(s.raw)?,
            Stmt::EmitExpr(s) => {
                let v = self.expr(&s.expr)?;
                self.emit_value(&v)?;
            }
            Stmt::IfCond(s) => {
                let yes = self.expr(&s.expr)?.truthy();
                return self.body(if yes { &s.true_body } else { &s.false_body });
            }
            Stmt::ForLoop(s) => {
                let items = self.expr(&s.iter)?;
                return self.for_loop(s, &items, 0, self.env.clone());
            }
            Stmt::Set(s) => {
                let v = self.expr(&s.expr)?;
                self.assign(&s.target, v)?;
            }
            Stmt::SetBlock(s) => {
                let (mut v, flow) = self.written_by(&s.body)?;
                if let Some(filter) = &s.filter {
                    v = self.filter_chain(filter, v)?;
                }
                self.assign(&s.target, v)?;
                return Ok(flow);
            }
            Stmt::FilterBlock(s) => {
                let (v, flow) = self.written_by(&s.body)?;
                let v = self.filter_chain(&s.filter, v)?;
                self.emit_value(&v)?;
                return Ok(flow);
            }
            Stmt::WithBlock(s) => return self.with_block(s),
            Stmt::Macro(m) => {
                let v = self.macro_value(m, m.name)?;
                self.set_var(m.name, v)?;
            }
            Stmt::CallBlock(s) => {
                let caller = self.macro_value(&s.macro_decl, "caller")?;
                let v = self.call_expr(&s.call, Some(caller))?;
                self.emit_value(&v)?;
            }
            Stmt::Do(s) => {
                self.call_expr(&s.call, None)?;
            }
            Stmt::Continue(_) => return Ok(Flow::Continue),
            Stmt::Break(_) => return Ok(Flow::Break),
            Stmt::Template(t) => return self.body(&t.children),
            Stmt::AutoEscape(s) => return self.body(&s.body),
            #[allow(unreachable_patterns)]
            _ => return bad("this statement is not allowed in a chat template"),
        }
        Ok(Flow::Next)
    }

    /// What a block writes in a scope of its own, and how it ended.
    fn written_by(&mut self, body: &[Stmt<'static>]) -> Res<(V, Flow)> {
        let env = self.env.clone();
        let (text, flow) = self.capture(|e| e.scoped(env, |e| e.body(body)))?;
        Ok((self.text(text)?, flow))
    }

    fn with_block(&mut self, s: &ast::WithBlock<'static>) -> Res<Flow> {
        let env = self.env.clone();
        self.scoped(env, |e| {
            for (target, value) in &s.assignments {
                let v = e.expr(value)?;
                e.assign(target, v)?;
            }
            e.body(&s.body)
        })
    }

    fn macro_value(&mut self, decl: &ast::Macro<'static>, name: &str) -> Res<V> {
        if !self.captured.last().is_some_and(|e| Rc::ptr_eq(e, &self.env)) {
            if self.captured.len() >= MAX_MACRO_SCOPES {
                return Err(Fault::Limit(format!("the template defines macros in more than {MAX_MACRO_SCOPES} scopes")));
            }
            self.captured.push(self.env.clone());
        }
        Ok(V::Macro(Rc::new(Macro { decl, name: name.to_string(), env: self.env.clone() })))
    }

    pub fn assign(&mut self, target: &Expr<'static>, value: V) -> Res<()> {
        match target {
            Expr::Var(v) => self.set_var(v.id, value),
            Expr::List(l) => self.unpack(&l.items, value),
            Expr::Tuple(t) => self.unpack(&t.items, value),
            Expr::GetAttr(a) => {
                let owner = self.expr(&a.expr)?;
                let V::Namespace(ns) = owner else { return bad("cannot assign attribute on non-namespace object") };
                if value.holds_namespace() && !matches!(value, V::Macro(_)) {
                    return bad("a namespace cannot hold a namespace");
                }
                self.fits(0)?;
                let mut attrs = ns.attrs.borrow_mut();
                self.names_step(attrs.len())?;
                match attrs.iter_mut().find(|x| x.0 == a.name) {
                    Some(x) => x.1 = value,
                    None => attrs.push((a.name.to_string(), value)),
                }
                Ok(())
            }
            _ => bad("cannot assign to this expression"),
        }
    }

    fn unpack(&mut self, targets: &[Expr<'static>], value: V) -> Res<()> {
        let items = self.iterate(&value)?;
        if items.len() != targets.len() {
            return bad(format!("cannot unpack {} values into {} names", items.len(), targets.len()));
        }
        for (t, v) in targets.iter().zip(items) {
            self.assign(t, v)?;
        }
        Ok(())
    }

    /// The items of anything that can be iterated.
    pub fn iterate(&mut self, v: &V) -> Res<Vec<V>> {
        match v {
            V::List(l) => {
                self.reserve(l.items.len() * 32)?;
                Ok(l.items.clone())
            }
            V::Map(m) => {
                self.reserve(m.entries.len() * 32)?;
                Ok(m.entries.iter().map(|e| e.0.clone()).collect())
            }
            V::Str(t) => {
                self.reserve_values(t.s.chars().count(), 0)?;
                Ok(t.s.chars().map(|c| V::str(c.to_string())).collect())
            }
            V::Range(a, b, s) => {
                let n = range_len(*a, *b, *s) as usize;
                self.reserve(n.saturating_mul(32))?;
                self.step(n as u64)?;
                Ok((0..n).map(|i| V::Int(*a as i128 + i as i128 * *s as i128)).collect())
            }
            V::Undefined(_) => Ok(Vec::new()),
            other => bad(format!("'{}' object is not iterable", other.type_name())),
        }
    }

    pub fn for_loop(&mut self, s: &ast::ForLoop<'static>, over: &V, depth0: usize, outer: Rc<Env>) -> Res<Flow> {
        let mut items = self.iterate(over)?;
        if let Some(test) = &s.filter_expr {
            let mut kept = Vec::new();
            for item in items {
                let yes = self.scoped(outer.clone(), |e| {
                    e.assign(&s.target, item.clone())?;
                    Ok(e.expr(test)?.truthy())
                })?;
                if yes {
                    kept.push(item);
                }
            }
            items = kept;
        }
        if items.is_empty() {
            return self.scoped(outer, |e| e.body(&s.else_body));
        }
        let state =
            Rc::new(LoopState { items, index0: Cell::new(0), depth0, changed: RefCell::new(None), body: s, env: outer.clone() });
        for i in 0..state.items.len() {
            state.index0.set(i);
            self.step(2)?; // the item and its scope
            let flow = self.scoped(outer.clone(), |e| {
                e.env.set("loop", V::Loop(state.clone()));
                e.assign(&s.target, state.items[i].clone())?;
                e.body(&s.body)
            })?;
            if let Flow::Break = flow {
                break;
            }
        }
        Ok(Flow::Next)
    }

    pub fn expr(&mut self, expr: &Expr<'static>) -> Res<V> {
        self.step(1)?;
        nested!(self, super::expr::evaluate(self, expr))
    }
}
