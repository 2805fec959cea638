//! Calls: macros, recursive loops, filters in chains, arguments.

use minijinja::machinery::ast::{self, Expr};

use super::eval::{nested, Eval, LoopState};
use super::ops;
use super::value::*;

/// Positions, then names.
type Args = (Vec<V>, Vec<(String, V)>);

impl Eval {
    /// A call of a macro with Jinja's rules: positions, then names, then defaults, else undefined.
    pub fn call_macro(&mut self, m: &Macro, args: Vec<V>, kwargs: Vec<(String, V)>) -> Res<V> {
        // SAFETY: the syntax tree outlives every value of a render (the `Template` that is rendered keeps it for the whole call).
        let decl = unsafe { &*m.decl };
        if args.len() > decl.args.len() {
            return bad(format!("macro '{}' takes not more than {} argument(s)", m.name, decl.args.len()));
        }
        self.names_step(kwargs.len().saturating_mul(decl.args.len()))?;
        let env = m.env.clone();
        let (text, _) = nested!(
            self,
            self.capture(|e| {
                e.scoped(env, |e| {
                    let mut kwargs = kwargs;
                    let first_default = decl.args.len() - decl.defaults.len();
                    for (i, target) in decl.args.iter().enumerate() {
                        let Expr::Var(name) = target else { return bad("macro arguments must be names") };
                        let named = kwargs.iter().position(|k| k.0 == name.id).map(|at| kwargs.remove(at).1);
                        let value = match (args.get(i), named) {
                            (Some(_), Some(_)) => return bad(format!("macro '{}' got '{}' twice", m.name, name.id)),
                            (Some(v), None) => v.clone(),
                            (None, Some(v)) => v,
                            (None, None) if i >= first_default => e.expr(&decl.defaults[i - first_default])?,
                            (None, None) => V::undefined(name.id),
                        };
                        e.set_var(name.id, value)?;
                    }
                    for (name, value) in kwargs {
                        if name != "caller" {
                            return bad(format!("macro '{}' takes no keyword argument '{name}'", m.name));
                        }
                        e.set_var("caller", value)?;
                    }
                    e.body(&decl.body)
                })
            })
        )?;
        self.text(text)
    }

    /// `loop(items)` of a recursive loop.
    pub fn call_loop(&mut self, state: &LoopState, over: &V) -> Res<V> {
        // SAFETY: as above.
        let body = unsafe { &*state.body };
        if !body.recursive {
            return bad("the loop is not marked as recursive");
        }
        let (text, _) = nested!(self, self.capture(|e| e.for_loop(body, over, state.depth0 + 1, state.env.clone())))?;
        self.text(text)
    }

    pub fn filter_chain(&mut self, filter: &Expr<'static>, input: V) -> Res<V> {
        let Expr::Filter(f) = filter else { return bad("a filter is expected") };
        let value = match &f.expr {
            Some(inner) => nested!(self, self.filter_chain(inner, input))?,
            None => input,
        };
        let (args, kwargs) = self.call_args(&f.args)?;
        super::filters::apply(self, f.name, value, args, kwargs)
    }

    pub fn call_args(&mut self, args: &[ast::CallArg<'static>]) -> Res<Args> {
        let mut pos = Vec::new();
        let mut named = Vec::new();
        for arg in args {
            match arg {
                ast::CallArg::Pos(x) => pos.push(self.expr(x)?),
                ast::CallArg::Kwarg(name, x) => named.push((name.to_string(), self.expr(x)?)),
                ast::CallArg::PosSplat(x) => {
                    let v = self.expr(x)?;
                    pos.extend(self.iterate(&v)?);
                }
                ast::CallArg::KwargSplat(x) => match self.expr(x)? {
                    V::Map(m) => {
                        for (k, v) in &m.entries {
                            let name = k.as_str().ok_or_else(|| Fault::Bad("keywords must be strings".into()))?;
                            named.push((name.to_string(), v.clone()));
                        }
                    }
                    _ => return bad("argument after ** must be a mapping"),
                },
            }
        }
        Ok((pos, named))
    }

    pub fn call_expr(&mut self, call: &ast::Call<'static>, caller: Option<V>) -> Res<V> {
        let callee = self.expr(&call.expr)?;
        let (args, mut kwargs) = self.call_args(&call.args)?;
        kwargs.extend(caller.map(|c| ("caller".to_string(), c)));
        self.call(&callee, args, kwargs)
    }

    pub fn call(&mut self, callee: &V, args: Vec<V>, kwargs: Vec<(String, V)>) -> Res<V> {
        match callee {
            V::Macro(m) => self.call_macro(m, args, kwargs),
            V::Function(name) => super::functions::call(self, name, args, kwargs),
            V::Method(m) => super::methods::call(self, &m.0, m.1, args, kwargs),
            V::Loop(state) => match args.first() {
                Some(over) => self.call_loop(state, over),
                None => bad("loop() needs the items"),
            },
            other => {
                ops::undefined_error(other)?;
                bad(format!("'{}' object is not callable", other.type_name()))
            }
        }
    }
}
